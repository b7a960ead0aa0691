"""`backup`: all that a service keeps, in one archive, while it runs."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import failures
from ..output import counted, is_terminal, one_line, size
from ..output_file import refuse_own
from ..progress import watched
from ..service_files import now, of_the_file, place_of, require_local_files, say

# The rest is imported where it is needed: the other commands would wait for it.
if TYPE_CHECKING:
    from ...backup.backup import Scope
    from ...backup.manifest import Manifest
    from ...settings.settings import Settings

STDOUT = "-"


@click.command(short_help="Write all that is kept into one archive.")
@of_the_file("db_path", "keys_file", "redaction_file")
@click.option(
    "--to", metavar="PATH", required=True, help="A file, or a folder; - is standard output."
)
@click.option(
    "--tenant", "tenants", metavar="NAME", multiple=True, help="Only this one; repeatable."
)
@click.option("--keys", "with_keys", is_flag=True, help="The keys of the tenants as well.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def backup(
    to: str,
    tenants: tuple[str, ...],
    with_keys: bool,
    force: bool,
    as_json: bool,
    **files: str | None,
) -> None:
    """Write the databases of all tenants into one archive, while a service may be running.

    No save waits for it. The archive is read over once before it has its name,
    and is for its owner alone to read. `restore` puts it back.
    """
    with failures():
        place = place_of(files)
        if not to:
            raise click.UsageError("--to needs a name.")
        refuse_own(to, place)
        require_local_files(place)
        scope = scope_of(tenants, with_keys=with_keys)
        if to == STDOUT:
            _stream(place, scope)
        else:
            _write(place, Path(to), scope, force=force, as_json=as_json)


def scope_of(tenants: Sequence[str], *, with_keys: bool) -> "Scope":
    """What the options say of whose files are meant."""
    from ...backup.backup import Scope  # noqa: PLC0415
    from ...domain.model.access import tenant_id  # noqa: PLC0415

    return Scope(tenants=tuple(map(tenant_id, dict.fromkeys(tenants))), with_keys=with_keys)


def _write(place: "Settings", to: Path, scope: "Scope", *, force: bool, as_json: bool) -> None:
    from ...backup.backup import make_archive  # noqa: PLC0415
    from ...backup.manifest import document  # noqa: PLC0415

    with watched("Backing up") as told:
        made = make_archive(place, to, scope, now=now(), is_forced=force, progress=told)
    if as_json:
        fields = {"archive": str(made.path), "bytes": made.size, **document(made.manifest)}
        click.echo(json.dumps(fields))
    else:
        click.echo(one_line(f"Saved {summary(made.manifest)}: {made.path}, {size(made.size)}."))
    _warn(made.manifest)


def _stream(place: "Settings", scope: "Scope") -> None:
    from ...backup.backup import archive_draft  # noqa: PLC0415

    if sys.stdout is None or is_terminal(sys.stdout):
        raise click.UsageError("An archive is nothing for a terminal; name a file.")
    folder = place.db_path.parent
    with (
        watched("Backing up") as told,
        archive_draft(place, folder, scope, now=now(), progress=told) as (manifest, draft),
        draft.open("rb") as source,
    ):
        shutil.copyfileobj(source, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    say(f"Saved {summary(manifest)}.")
    _warn(manifest)


def damage(manifest: "Manifest") -> str:
    """What of an archive is damaged, in a sentence; nothing if it is not."""
    if not manifest.damaged:
        return ""
    from ...domain.model.findings import some_of  # noqa: PLC0415

    return one_line(f"Values in it are damaged: {some_of(manifest.damaged)}.")


def _warn(manifest: "Manifest") -> None:
    if told := damage(manifest):
        say(f"{told} `agentops-memory doctor --fix` mends the database; keep an older archive.")


def summary(manifest: "Manifest") -> str:
    """How much an archive holds."""
    parts = manifest.tenants
    observations = sum(part.contents.counts.observations for part in parts)
    entries = sum(part.contents.counts.entries for part in parts)
    sessions = sum(part.contents.counts.sessions for part in parts)
    return (
        f"{counted(len(parts), 'tenant')} with {counted(observations, 'observation')}, "
        f"{counted(sessions, 'session')} and {counted(entries, 'entry', 'entries')} of stores"
    )
