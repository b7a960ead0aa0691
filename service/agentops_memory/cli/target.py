"""Which memories a command works on: those of a running service, or those of a database file."""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from agentops_memory_client.contract.port import MemoryService, TransferService

from .errors import FileRefused, NoDatabase, NoTenant, failures
from .service_files import of_the_file, place_of, say

# The rest is imported where it is needed: the other commands would wait for it.
if TYPE_CHECKING:
    from ..domain.model.access import TenantId
    from ..settings.settings import Settings

T = TypeVar("T")

URL, KEY, PROJECT = "MEMORY_URL", "MEMORY_API_KEY", "MEMORY_PROJECT"


class Memories(MemoryService, TransferService, Protocol):
    """What a command can ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Where the memories are: at a url, or else in the file of a tenant."""

    url: str | None
    db: str | None
    tenant: str | None

    @classmethod
    def of(cls, given: Mapping[str, str | None]) -> "Reach":
        """What the options say; a file that they name goes before a url of the environment."""
        url, db, tenant = (given[name] or None for name in ("url", "db_path", "tenant"))
        if url and (db or tenant):
            raise click.UsageError("--url is a service; --db and --tenant are of a file.")
        if not (db or tenant):
            url = url or os.environ.get(URL) or None
        return cls(url=url, db=db, tenant=tenant)

    @property
    def place(self) -> "Settings":
        """The settings of the file."""
        return place_of({"db_path": self.db})


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where the memories are."""
    return of_a_service(of_the_file("db_path")(of_a_tenant(command)))


def of_a_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option that names a running service."""
    return click.option(
        "--url", metavar="URL", help=f"A running service; its key is in {KEY}. [{URL}]"
    )(command)


def of_a_tenant(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option that names the tenant of a file."""
    return click.option("--tenant", metavar="NAME", help="Whose file. [default: default]")(command)


def of_a_project(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option that names a project."""
    return click.option(
        "--project", metavar="NAME", envvar=PROJECT, help=f"Which project. [{PROJECT}]"
    )(command)


def asked(
    given: Mapping[str, str | None],
    work: Callable[[Memories], Awaitable[T]],
    *,
    may_make: bool = False,
) -> T:
    """What work answers; what goes wrong ends the program. A file is made only if it may be."""

    import asyncio  # noqa: PLC0415

    async def answered() -> T:
        async with _reached(Reach.of(given), may_make=may_make) as memories:
            return await work(memories)

    with failures():
        return asyncio.run(answered())


@asynccontextmanager
async def _reached(reach: Reach, *, may_make: bool) -> AsyncIterator[Memories]:
    if reach.url is not None:
        async with service_at(reach.url) as memories:
            yield memories
        return
    from ..compose import opened_here  # noqa: PLC0415
    from ..telemetry import Telemetry  # noqa: PLC0415

    place = reach.place
    tenant, path = usable_file(place, reach.tenant, may_make=may_make)
    if not path.exists():
        say(f"Makes the database {path}.")
    with silent(logging.getLogger("agentops_memory")):
        async with opened_here(place, Telemetry.started(None), tenant) as memories:
            yield memories


@asynccontextmanager
async def service_at(url: str) -> AsyncIterator[Memories]:
    """A running service, for the owner of the key that the environment has."""
    from agentops_memory_client import AsyncMemoryClient  # noqa: PLC0415

    async with AsyncMemoryClient.from_environment(url=url) as client:
        yield client


def usable_file(place: "Settings", name: str | None, *, may_make: bool) -> tuple["TenantId", Path]:
    """The tenant of this name, and its file, which a start would not change.

    It may be missing, or empty, if it may be made; missing only if it is the default tenant's.
    """
    from ..domain.model.access import DEFAULT_TENANT, tenant_id  # noqa: PLC0415
    from ..files.file_systems import require_local  # noqa: PLC0415
    from ..storage.sqlite.engine.tenants import tenant_file  # noqa: PLC0415
    from ..storage.sqlite.schema.migrate import require_current  # noqa: PLC0415

    tenant = tenant_id(name or DEFAULT_TENANT)
    path = tenant_file(place.db_path, tenant)
    require_local(path, is_network_allowed=place.allow_network_fs)
    if _is_there(path):
        require_current(path, place.recall, may_be_new=may_make)
    elif tenant != DEFAULT_TENANT:
        raise NoTenant(f"There is no tenant {tenant}: it would be {path}.")
    elif not may_make:
        raise NoDatabase(f"There is no database at {path}.")
    return tenant, path


@contextmanager
def silent(log: logging.Logger) -> Iterator[None]:
    """Inside, nothing is logged: people are told what concerns them, by what is raised too."""
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _is_there(path: Path) -> bool:
    try:
        if path.is_dir():
            raise FileRefused(f"{path} is a folder; a database is a file.")
        return path.exists()
    except OSError as error:
        raise FileRefused(f"The database {path} cannot be used: {error.strerror}.") from error
