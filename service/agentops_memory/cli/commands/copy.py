"""`copy`: all that a service keeps, from its files into a database of PostgreSQL, or back."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from agentops_memory_client.contract.models import Progress

from ...memory.model.access import tenant_id
from ...operations.copied_files import CopyRefused
from ...operations.files.keys import KeyFile
from ...settings.settings import Settings, settings
from ..catalog import command
from ..errors import file_errors
from ..invocation import now, user
from ..options import json_option, scope_option, setting_options
from ..output import counted, one_line, print_table, progress_bar
from ..service_files import require_local_files
from ..target import silent

if TYPE_CHECKING:
    from ...operations.copying import Copied

POSTGRESQL = "postgresql"
URL_PARTS = ("://", "password=", "host=", "dbname=")
OF_TABLES, OF_PROJECTS = ("TABLE", "ROWS"), ("PROJECT", "DIGEST")
NO_PROJECT = "(none)"


@command()
@setting_options("db_path", "keys_file")
@click.option(
    "--to",
    metavar="TARGET",
    required=True,
    help="`postgresql`, for the database of MEMORY_DATABASE_URL; or a file, from that database.",
)
@scope_option
@json_option()
def copy(to: str, tenants: Sequence[str], as_json: bool, **files: str | None) -> None:
    """Copy the tenants with all that they have, from SQLite to PostgreSQL or back.

    The URL stands in MEMORY_DATABASE_URL alone. The target must be empty. A
    tenant is there whole or not at all: repeat the command if it was
    interrupted. End the services of both sides first: it is refused while one
    runs, as what is stored meanwhile would not be copied.
    """
    if not to:
        raise click.UsageError("--to needs a name.")
    if to != POSTGRESQL:
        _refuse_url(to)
        files["db_path"] = to
    chosen, named = settings(flags=files), [tenant_id(it) for it in tenants]
    shown = []
    quiet = silent(logging.getLogger("psycopg"))  # it tells of what failed twice
    bars: list[Progress | None] = []

    def tell(done: int, of: int) -> None:
        if bar := bars[-1]:
            bar(done, of)

    with file_errors(), quiet:
        every = _copied(chosen, to, named, tell)
        while it := _next(every, bars):
            shown.append(_document(it))
            if not as_json:
                _print(it)
    if as_json:
        click.echo(json.dumps({"tenants": shown}))


def _next(every: Iterator["Copied"], bars: list[Progress | None]) -> "Copied | None":
    with progress_bar("Copying", place=(0, 1)) as bar:
        bars.append(bar)
        return next(every, None)


def _copied(
    settings: Settings, to: str, named: Sequence[Any], progress: Callable[[int, int], None]
) -> Iterator["Copied"]:
    if settings.database_url is None:
        raise CopyRefused("MEMORY_DATABASE_URL is unset: it names the database.")
    # Not at the top: the driver is an extra, and its absence is told of by the setting.
    from ...operations.copied_files import Files  # noqa: PLC0415
    from ...operations.copying import to_database, to_files  # noqa: PLC0415

    require_local_files(settings)
    files = Files(
        path=settings.db_path,
        keys=KeyFile(settings.keys_file, settings.audit_file),
        audit=settings.audit_file,
        features=settings.recall,
    )
    if to == POSTGRESQL:
        return to_database(
            files, settings.database_url, named, at=now(), by=user(), progress=progress
        )
    return to_files(settings.database_url, files, named, at=now(), by=user(), progress=progress)


def _refuse_url(to: str) -> None:
    if any(part in to for part in URL_PARTS):
        raise CopyRefused(
            "A URL among the arguments stands in the list of processes, with its password: put it "
            "into MEMORY_DATABASE_URL, and say --to postgresql."
        )


def _print(it: "Copied") -> None:
    counts, digests = it.tally.counts, it.tally.digests
    rows, tables = sum(counts.values()), sum(map(bool, counts.values()))
    verb = "was there already" if it.was_there else "is copied"
    held = f"{counted(rows, 'row')} in {counted(tables, 'table')}"
    click.echo(f"{it.tenant}: {verb}, {held}, equal on both sides.")
    if rows:
        print_table(OF_TABLES, [(name, count) for name, count in counts.items() if count])
        print_table(OF_PROJECTS, [(_name(it), digest) for it, digest in digests.items()])


def _name(project: str | None) -> str:
    return NO_PROJECT if project is None else one_line(project)


def _document(it: "Copied") -> dict[str, Any]:
    return {
        "tenant": it.tenant,
        "was_there": it.was_there,
        "rows": it.tally.counts,
        "projects": [
            {"project": project, "digest": digest} for project, digest in it.tally.digests.items()
        ],
    }
