"""Which memories a command works on: of which project, in a running service or a database file.

The parameters that commands share, each declared once.
"""

import asyncio
import logging
import os
import re
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ..engine.files import os_errors_as
from ..errors import StartRefused
from ..light import dataclass, replace
from ..settings import VARIABLES, Settings
from .output import FileRefused, NoDatabase, file_errors, has_flag, one_line, print_json, say
from .program import SettingOption, is_id

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from agentops_memory_client.contract.service import MemoryService  # which needs pydantic


T = TypeVar("T")

URL = "MEMORY_URL"
OPTIONS = ("url", "db_path", "tenant", "key_file")
OF_FILES = {"tenant", *(variable.field for variable in VARIABLES)}
MOST_READ = 4096  # bytes of a key file; a key has fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the memories are: at a url, or else in the file of a tenant."""

    url: str | None
    db: str | None
    tenant: str | None
    key_file: str | None

    @classmethod
    def of(cls, params: Mapping[str, str | None]) -> "Target":
        """What the options say; a file that they name goes before a url of the environment."""
        url, db, tenant, key_file = (params[name] or None for name in OPTIONS)
        if url and (db or tenant):
            raise click.UsageError("--url selects a service; --db and --tenant work on files.")
        if not (db or tenant):
            url = url or os.environ.get(URL) or None
        if key_file and not url:
            raise click.UsageError(f"--key-file is the key for a service: add --url or {URL}.")
        return cls(url=url, db=db, tenant=tenant, key_file=key_file)

    @classmethod
    def of_operator(cls, params: dict[str, str | None]) -> "Target | None":
        """The service that a command for operators names; None for the files here.

        MEMORY_URL does not count: it is there for agents, and an erasure does not follow it. What
        the options say of the service is taken out of them.
        """
        url, key_file = params.pop("url"), params.pop("key_file")
        if url is None:
            if key_file:
                raise click.UsageError("--key-file is the key for a service: add --url.")
            return None
        if not url:  # an unset variable of a script: the files here are not what it means
            raise click.UsageError("--url is empty; it must be the address of a service.")
        context = click.get_current_context()
        for option in context.command.params:
            name, source = str(option.name), context.get_parameter_source(str(option.name))
            if name in OF_FILES and source is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--url selects a service; {option.opts[0]} works on files.")
        return cls(url=url, db=None, tenant=None, key_file=key_file)

    @property
    def key(self) -> str | None:
        if self.key_file is None:
            return None
        unread = os_errors_as(FileRefused, f"{self.key_file} cannot be read")
        with unread, Path(self.key_file).open("rb") as file:
            text = file.read(MOST_READ)
        key = text.decode(errors="replace").strip()
        if not key or len(text) == MOST_READ:
            raise FileRefused(f"{self.key_file} must contain one line, the key.")
        return key

    @property
    def settings(self) -> Settings:
        from .place import chosen_settings  # noqa: PLC0415 - nor is it needed for a url

        return chosen_settings({"db_path": self.db})

    @property
    def scratch(self) -> Path | None:
        """The folder of temporary files: the database's, as a pod may write to no other."""
        folder = None if self.url else self.settings.db_path.parent
        return folder if folder and folder.is_dir() else None


def run_on_target(
    params: dict[str, Any], work: Callable[["MemoryService"], Awaitable[T]], *,
    may_make: bool = False, may_be_missing: bool = False,
) -> T:  # fmt: skip
    """What work answers. A database is made only if it may be; a missing one counts as empty.

    What says where the memories are is taken out of the options.
    """
    where = {name: params.pop(name) for name in OPTIONS}
    with file_errors():
        target = Target.of(where)
        if target.url is not None:
            return ask(service_at(target), work)
        return ask(_opened(target, may_make=may_make, may_be_missing=may_be_missing), work)


def ask(
    opened: "AbstractAsyncContextManager[MemoryService]",
    work: Callable[["MemoryService"], Awaitable[T]],
) -> T:
    async def answer() -> T:
        async with opened as memories:
            return await work(memories)

    return asyncio.run(answer())


def answered(params: dict[str, Any], work: Callable[["MemoryService"], Awaitable[T]]) -> T:
    """What work answers; with --json it is printed, and the command is done."""
    answer = run_on_target(params, work)
    if has_flag("json"):
        print_json(answer)
        click.get_current_context().exit()
    return answer


@asynccontextmanager
async def _opened(
    target: Target, *, may_make: bool, may_be_missing: bool
) -> AsyncIterator["MemoryService"]:
    from ..local import opened_here  # noqa: PLC0415
    from ..telemetry import Telemetry  # noqa: PLC0415
    from .place import usable  # noqa: PLC0415

    with ExitStack() as stack:
        try:
            backend, tenant = usable(target.db, target.tenant, may_make=may_make)
            settings = backend.settings
        except (NoDatabase, StartRefused):
            if not may_be_missing:
                raise
            backend, tenant = usable(target.db, target.tenant, may_make=True)
            from tempfile import TemporaryDirectory  # noqa: PLC0415 - seldom needed

            folder = TemporaryDirectory(dir=target.scratch, prefix=".empty-")
            path = Path(stack.enter_context(folder)) / "memory.db"
            settings = replace(backend.settings, database_url=None, db_path=path)
        else:
            if not backend.has(tenant):
                other = "" if target.db else f" To use a running service instead, set {URL}."
                say(f"Creating {backend.name_of(tenant)}.{other}")
        stack.enter_context(silent(logging.getLogger("agentops_memory")))
        # What it asks is answered before an index is loaded, which takes longer than the answer.
        settings = replace(settings, index_cache=0)
        async with opened_here(settings, Telemetry.started(None), tenant) as memories:
            yield memories


@asynccontextmanager
async def service_at(target: Target) -> AsyncIterator["MemoryService"]:
    """A running service, for the owner of the key in the file or in the environment."""
    from agentops_memory_client import AsyncMemoryClient, MemoryServiceWarning  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryServiceWarning)  # which commands and tools print
        async with AsyncMemoryClient.from_environment(url=target.url, key=target.key) as memories:
            yield memories


@contextmanager
def silent(log: logging.Logger) -> Iterator[None]:
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


FILE = ".agentops-memory.toml"  # has `project = "name"`
_REMOTE = re.compile(r'^\s*\[remote "([^"]+)"\]|^\s*url\s*=\s*(\S+)', re.MULTILINE)


def project_here() -> str:
    """What FILE says in this folder or above it; else its repository's name, else its own name.

    A repository has the name of its remote, so that every clone and worktree is one project;
    without a remote it has the name of its top-level folder.
    """
    here = Path.cwd().resolve()
    for each in (here, *here.parents):
        if (file := each / FILE).is_file():
            import tomllib  # noqa: PLC0415 - seldom needed

            try:
                name = tomllib.loads(file.read_text("utf-8"))["project"]
            except (OSError, ValueError, KeyError) as error:
                raise FileRefused(
                    f'{file} cannot be read: it must be TOML with project = "name".'
                ) from error
            if not isinstance(name, str):
                raise FileRefused(f"{file}: project must be text in quotes.")
            return name
        if (git := each / ".git").exists():
            return _of_repository(each, git)
    return here.name


def _of_repository(top: Path, git: Path) -> str:
    try:
        if git.is_file():  # of a worktree or a submodule: it names the folder
            git = top / git.read_text("utf-8").partition("gitdir:")[2].strip()
        if (common := git / "commondir").is_file():  # that of all worktrees
            git = (git / common.read_text("utf-8").strip()).resolve()
        config = (git / "config").read_text("utf-8")
    except (OSError, ValueError):
        return top.name
    remotes: dict[str, str] = {}
    section = ""
    for remote, url in _REMOTE.findall(config):
        section = remote or section
        if url and section:
            remotes.setdefault(section, url)
    address = remotes.get("origin") or next(iter(remotes.values()), "")
    name = re.split(r"[/:\\]", address.rstrip("/"))[-1].removesuffix(".git")
    return name or (git.parent.name if git.name == ".git" else top.name)


KEY, PROJECT = "MEMORY_API_KEY", "MEMORY_PROJECT"
COMPLETED = 50  # memories among which a shell completes an id
SAMPLED = 500  # memories whose types are offered


class MemoryId(click.ParamType[int]):
    """The id of a memory: 12, or #12 as lists show it."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(value.removeprefix("#")) if is_id(str(value)) else 0
        if number < 1:
            self.fail(f"{value!r} is not a memory id; an id is a number.", param, ctx)
        return number


def option(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, **attributes)


def argument(name: str, **attributes: Any) -> click.Argument:
    return click.Argument([name], **attributes)


flag = partial(option, is_flag=True)


def completing(
    work: Callable[["MemoryService", str | None], Awaitable[list[CompletionItem]]],
) -> Callable[..., list[CompletionItem]]:
    """What a shell offers, from the memories that the options name; nothing if they fail."""

    def complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
        params = {name: ctx.params.get(name) for name in (*OPTIONS, "project")}
        with suppress(Exception):
            items = run_on_target(params, lambda it: work(it, params["project"] or None))
            return [it for it in items if it.value.startswith(begun)]
        return []

    return complete


@completing
async def projects(memories: "MemoryService", _: str | None) -> list[CompletionItem]:
    return [CompletionItem(name) for name in (await memories.stats()).projects]


@completing
async def types(memories: "MemoryService", project: str | None) -> list[CompletionItem]:
    recent = await memories.recent(project, limit=SAMPLED)
    return [CompletionItem(name) for name in sorted({it.type for it in recent})]


@completing
async def ids(memories: "MemoryService", project: str | None) -> list[CompletionItem]:
    recent = await memories.recent(project, limit=COMPLETED)
    return [CompletionItem(str(it.id), help=one_line(it.title)) for it in recent]


def ids_or_files(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    return ids(ctx, param, begun) or [CompletionItem(begun, type="file")]


def setting_options(*fields: str) -> list[click.Option]:
    """The options of these settings, or of all; the command gets the text of each."""
    return [
        SettingOption(
            [it.flag, it.field], metavar=it.kind,
            help=f"{it.help} [{it.name}, default: {it.default or 'unset'}]",
        )
        for it in VARIABLES if it.flag and (it.field in fields or not fields)
    ]  # fmt: skip


def parsed_by(parse: Callable[[str], T]) -> Callable[..., T | None]:
    """The callback of an option whose text is read like that of a setting."""

    def read(context: click.Context, option: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} {error}.", context, option) from error

    return read


def _required_name(context: click.Context, _: click.Parameter, name: str) -> str:
    if not name:
        raise click.UsageError("--to needs a name.", context)
    return name


def _project_here() -> str | None:
    """The project of the folder; none while a shell completes where it cannot be read."""
    try:
        return project_here()
    except FileRefused:
        if click.get_current_context().resilient_parsing:
            return None
        raise


# How a command prints, and what it may do.
json_option = partial(flag, "--json", expose_value=False, help="Print JSON.")
DRY_RUN = flag("--dry-run", help="Show what would be done, and change nothing.")
CAREFUL = (DRY_RUN, flag("--yes", expose_value=False, help="Do not ask."), json_option())
FORCE = flag("--force", help="Overwrite an existing file.")
to_option = partial(option, "--to", required=True, callback=_required_name)

# Where the memories are: at a service, or in the file of a tenant.
URL_OPTION = option(
    "--url", metavar="URL", help=f"Address of a running service; its key is in {KEY}. [{URL}]"
)
KEY_FILE = option(
    "--key-file", metavar="FILE", help=f"A file with the key for the service. [default: {KEY}]"
)
TENANT = option("--tenant", metavar="NAME", help="The tenant to use. [default: default]")
TARGET = (URL_OPTION, KEY_FILE, *setting_options("db_path"), TENANT)
# What a command on memories takes whose answer can be printed as it is.
ANSWER = (*TARGET, json_option(help="Print the JSON that the REST API returns."))
# What a command for operators takes that a running service has a route for, and any other.
SERVICE = (
    option("--url", metavar="URL", help="A running service to use instead of local files."),
    KEY_FILE,
)
tenant_option = partial(option, "--tenant", default="default", show_default=True)
TENANTS = option(
    "--tenant", "tenants", metavar="NAME", multiple=True, help="Only this one; may be repeated."
)

# Which memories.
PROJECT_OPTION = option(
    "--project", metavar="NAME", envvar=PROJECT, shell_complete=projects,
    help=f"Only this project. [{PROJECT}, default: all projects]",
)  # fmt: skip
HERE = option(
    "--project", metavar="NAME", envvar=PROJECT, default=_project_here, shell_complete=projects,
    help=f"The project; '' means all. [{PROJECT}, default: the current repository's]",
)  # fmt: skip
ID = argument("memory", metavar="ID", type=MemoryId(), shell_complete=ids)
IDS = argument(
    "memories", metavar="ID...", type=MemoryId(), nargs=-1, required=True, shell_complete=ids
)
TYPE = option("--type", metavar="TYPE", shell_complete=types, help="Only this type.")
FILTERS = (
    option(
        "--exclude-type", "exclude_types", multiple=True, metavar="TYPE", shell_complete=types,
        help="Not this type; may be repeated.",
    ),
    option("--tag", metavar="TAG", help="Only memories with this tag."),
    option(
        "--scope", metavar="NAME",
        help="Only this scope; global means the memories shared by all projects.",
    ),
)  # fmt: skip


def limit(rows: int) -> click.Option:
    return option(
        "--limit", type=click.IntRange(1, 1000), default=rows, show_default=True,
        help="Maximum number of rows.",
    )  # fmt: skip
