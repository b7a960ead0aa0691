"""The target of a command: the project, and the running service or the database file.

It also declares the parameters that several commands share.
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
from click.shell_completion import CompletionItem

from ..engine.files import os_errors_as
from ..light import dataclass, replace
from ..settings import VARIABLES, Settings
from .output import FileRefused, has_flag, one_line, print_json, say
from .program import SettingOption, is_id

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from agentops_memory_client.contract.service import MemoryService  # it needs pydantic


T = TypeVar("T")

URL = "MEMORY_URL"
OPTIONS = ("url", "db_path", "tenant", "key_file")
FILE_OPTIONS = {"tenant", *(variable.field for variable in VARIABLES)}
MOST_READ = 4096  # bytes of a key file; every key is shorter


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The location of memories: a service's URL, or else the file of a tenant."""

    url: str | None
    db: str | None
    tenant: str | None
    key_file: str | None

    @classmethod
    def of(cls, params: Mapping[str, str | None], *, is_operator: bool = False) -> "Target":
        """Read the options; a file that they name takes precedence over MEMORY_URL.

        An operator's command ignores that variable: it is meant for agents, and an erasure must
        not follow it.
        """
        url, db, tenant, key_file = (params.get(name) or None for name in OPTIONS)
        has_file = any(params.get(name) for name in FILE_OPTIONS)
        # It comes from an unset variable of a script, and does not mean files.
        if is_operator and params.get("url") == "":
            raise click.UsageError("--url is empty; it must be the address of a service.")
        if url and has_file:
            raise click.UsageError("--url selects a service; --db and --tenant work on files.")
        if not (has_file or is_operator):
            url = url or os.environ.get(URL) or None
        if key_file and not url:
            variable = "" if is_operator else f" or {URL}"
            raise click.UsageError(f"--key-file is the key for a service: add --url{variable}.")
        return cls(url=url, db=db, tenant=tenant, key_file=key_file)

    @property
    def key(self) -> str | None:
        if self.key_file is None:
            return None
        reading = os_errors_as(FileRefused, f"{self.key_file} cannot be read")
        with reading, Path(self.key_file).open("rb") as file:
            text = file.read(MOST_READ)
        key = text.decode(errors="replace").strip()
        if not key or len(text) == MOST_READ:
            raise FileRefused(f"{self.key_file} must contain one line, the key.")
        return key

    @property
    def settings(self) -> Settings:
        from .place import chosen_settings  # noqa: PLC0415 - not needed for a URL

        return chosen_settings({"db_path": self.db})

    @property
    def scratch(self) -> Path | None:
        """The folder of temporary files: the database's, the only writable one in some pods."""
        folder = None if self.url else self.settings.db_path.parent
        return folder if folder and folder.is_dir() else None


def run_on_target(
    params: dict[str, Any], work: Callable[["MemoryService"], Awaitable[T]], *,
    may_make: bool = False, may_be_missing: bool = False,
) -> T:  # fmt: skip
    """Run `work` on the target that `params` name; remove its options from `params`.

    `may_make` permits creating a database; with `may_be_missing` a missing one counts as empty.
    """
    options = {name: params.pop(name) for name in OPTIONS}
    target = Target.of(options)
    if target.url is not None:
        return ask(service_at(target), work)
    return ask(_opened(target, may_make=may_make, may_be_missing=may_be_missing), work)


def ask(
    opened: "AbstractAsyncContextManager[MemoryService]",
    work: Callable[["MemoryService"], Awaitable[T]],
) -> T:
    async def run() -> T:
        async with opened as memories:
            return await work(memories)

    return asyncio.run(run())


def answered(params: dict[str, Any], work: Callable[["MemoryService"], Awaitable[T]]) -> T:
    """Return the result of `work`; with --json, print it and end the command instead."""
    result = run_on_target(params, work)
    if has_flag("json"):
        print_json(result)
        click.get_current_context().exit()
    return result


@asynccontextmanager
async def _opened(
    target: Target, *, may_make: bool, may_be_missing: bool
) -> AsyncIterator["MemoryService"]:
    from ..local import opened_here  # noqa: PLC0415
    from ..telemetry import Telemetry  # noqa: PLC0415
    from .place import usable  # noqa: PLC0415

    with ExitStack() as stack:
        backend, tenant = usable(target.db, target.tenant, may_make=may_make or may_be_missing)
        settings = backend.settings
        if may_be_missing and not backend.has(tenant):
            from tempfile import TemporaryDirectory  # noqa: PLC0415 - seldom needed

            folder = TemporaryDirectory(dir=target.scratch, prefix=".empty-")
            path = Path(stack.enter_context(folder)) / "memory.db"
            settings = replace(settings, database_url=None, db_path=path)
        elif not backend.has(tenant):
            hint = "" if target.db else f" To use a running service instead, set {URL}."
            say(f"Creating {backend.name_of(tenant)}.{hint}")
        stack.enter_context(silent(logging.getLogger("agentops_memory")))
        # No index cache: loading it takes longer than a single command without it.
        settings = replace(settings, index_cache=0)
        async with opened_here(settings, Telemetry.started(None), tenant) as memories:
            yield memories


@asynccontextmanager
async def service_at(target: Target) -> AsyncIterator["MemoryService"]:
    """Connect to a running service, with the key in the file or in the environment."""
    from agentops_memory_client import AsyncMemoryClient, MemoryServiceWarning  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryServiceWarning)  # commands and tools print it
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


FILE = ".agentops-memory.toml"  # contains `project = "name"`
_REMOTE = re.compile(r'^\s*\[remote "([^"]+)"\]|^\s*url\s*=\s*(\S+)', re.MULTILINE)


def project_here() -> str:
    """Return the project in FILE, here or in a parent folder, or the repository's or folder's name.

    A repository is named after its remote, so that all clones and worktrees are one project;
    without a remote it is named after its top-level folder.
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
            return _repository_name(each, git)
    return here.name


def _repository_name(top: Path, git: Path) -> str:
    try:
        if git.is_file():  # in a worktree or submodule the file names the folder
            git = top / git.read_text("utf-8").partition("gitdir:")[2].strip()
        if (common := git / "commondir").is_file():  # the folder that all worktrees share
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
COMPLETED = 50  # newest memories whose ids a shell completes
SAMPLED = 500  # newest memories whose types a shell completes


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
    """Return a completion callback over the target's memories; it offers nothing on failure."""

    def complete(ctx: click.Context, _: click.Parameter, prefix: str) -> list[CompletionItem]:
        params = {name: ctx.params.get(name) for name in (*OPTIONS, "project")}
        with suppress(Exception):
            items = run_on_target(params, lambda it: work(it, params["project"] or None))
            return [it for it in items if it.value.startswith(prefix)]
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


def ids_or_files(ctx: click.Context, param: click.Parameter, prefix: str) -> list[CompletionItem]:
    return ids(ctx, param, prefix) or [CompletionItem(prefix, type="file")]


def setting_options(*fields: str) -> list[click.Option]:
    """Return the options of the named settings (default: all), which are passed as text."""
    return [
        SettingOption(
            [it.flag, it.field], metavar=it.kind,
            help=f"{it.help} [{it.name}, default: {it.default or 'unset'}]",
        )
        for it in VARIABLES if it.flag and (it.field in fields or not fields)
    ]  # fmt: skip


def parsed_by(parse: Callable[[str], T]) -> Callable[..., T | None]:
    """Return the callback of an option whose text is parsed like a setting."""

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


# Options for the output, and for what a command may change.
json_option = partial(flag, "--json", expose_value=False, help="Print JSON.")
DRY_RUN = flag("--dry-run", help="Show what would be done, and change nothing.")
CAREFUL = (DRY_RUN, flag("--yes", expose_value=False, help="Do not ask."), json_option())
FORCE = flag("--force", help="Overwrite an existing file.")
to_option = partial(option, "--to", required=True, callback=_required_name)

# Options for the target: a service, or the file of a tenant.
URL_OPTION = option(
    "--url", metavar="URL", help=f"Address of a running service; its key is in {KEY}. [{URL}]"
)
KEY_FILE = option(
    "--key-file", metavar="FILE", help=f"A file with the key for the service. [default: {KEY}]"
)
TENANT = option("--tenant", metavar="NAME", help="The tenant to use. [default: default]")
TARGET = (URL_OPTION, KEY_FILE, *setting_options("db_path"), TENANT)
# For a command on memories that can print its result as JSON.
ANSWER = (*TARGET, json_option(help="Print the JSON that the REST API returns."))
# For an operator's command that a running service has a route for.
SERVICE = (
    option("--url", metavar="URL", help="A running service to use instead of local files."),
    KEY_FILE,
)
TENANTS = option(
    "--tenant", "tenants", metavar="NAME", multiple=True, help="Only this tenant; may be repeated."
)

# Options that select memories.
PROJECT_OPTION = option(
    "--project", metavar="NAME", envvar=PROJECT, shell_complete=projects,
    help=f"Only this project. [{PROJECT}, default: all projects]",
)  # fmt: skip
HERE = option(
    "--project", metavar="NAME", envvar=PROJECT, default=project_here, shell_complete=projects,
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
        help="Exclude this type; may be repeated.",
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
