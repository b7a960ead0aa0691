"""`backup`: all that a service keeps, in one archive, while it runs."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ...memory.model.access import tenant_id
from ...memory.model.findings import some_of
from ...operations.backup.backup import Scope, archive_draft, make_archive
from ...operations.backup.manifest import Manifest, document
from ...settings.settings import Settings
from ..errors import file_errors
from ..invocation import now
from ..options import force_option, json_option, scope_option, setting_options
from ..output import counted, is_terminal, one_line, progress_bar, say, size
from ..output_file import refuse_own
from ..place import settings_of_files
from ..service_files import require_local_files

STDOUT = "-"


@click.command()
@setting_options("db_path", "keys_file", "redaction_file", "seal_file")
@click.option(
    "--to", metavar="PATH", required=True, help="A file, or a folder; - is standard output."
)
@scope_option
@click.option("--keys", "with_keys", is_flag=True, help="The keys of the tenants as well.")
@click.option(
    "--without-seal", is_flag=True, help="Leave out the keys that confidential values need."
)
@force_option
@json_option()
def backup(
    to: str,
    tenants: Sequence[str],
    with_keys: bool,
    without_seal: bool,
    force: bool,
    as_json: bool,
    **files: str | None,
) -> None:
    """Write the databases of all tenants into one archive, while a service may be running.

    No save waits for it. The archive is read over once before it has its name,
    and is for its owner alone to read. `restore` puts it back.
    """
    with file_errors():
        chosen = settings_of_files(files)
        if not to:
            raise click.UsageError("--to needs a name.")
        refuse_own(to, chosen)
        require_local_files(chosen)
        scope = scope_of(tenants, with_keys=with_keys, without_seal=without_seal)
        if to == STDOUT:
            _stream(chosen, scope)
        else:
            _write(chosen, Path(to), scope, force=force, as_json=as_json)


def scope_of(tenants: Sequence[str], *, with_keys: bool, without_seal: bool = False) -> Scope:
    """What the options say of whose files are meant."""
    named = tuple(map(tenant_id, dict.fromkeys(tenants)))
    return Scope(tenants=named, with_keys=with_keys, without_seal=without_seal)


def _write(settings: Settings, to: Path, scope: Scope, *, force: bool, as_json: bool) -> None:
    with progress_bar("Backing up") as bar:
        archive = make_archive(settings, to, scope, now=now(), is_forced=force, progress=bar)
    manifest = archive.manifest
    if as_json:
        fields = {"archive": str(archive.path), "bytes": archive.size, **document(manifest)}
        click.echo(json.dumps(fields))
    else:
        click.echo(one_line(f"Saved {_summary(manifest)}: {archive.path}, {size(archive.size)}."))
    _warn(manifest)


def _stream(settings: Settings, scope: Scope) -> None:
    if sys.stdout is None or is_terminal(sys.stdout):
        raise click.UsageError("An archive is nothing for a terminal; name a file.")
    folder = settings.db_path.parent
    with (
        progress_bar("Backing up") as bar,
        archive_draft(settings, folder, scope, now=now(), progress=bar) as (manifest, draft),
        draft.open("rb") as source,
    ):
        shutil.copyfileobj(source, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    say(f"Saved {_summary(manifest)}.")
    _warn(manifest)


def damage(manifest: Manifest) -> str:
    """What of an archive is damaged, in a sentence; nothing if it is not."""
    damaged = manifest.damaged
    return one_line(f"Values in it are damaged: {some_of(damaged)}.") if damaged else ""


def _warn(manifest: Manifest) -> None:
    if sentence := damage(manifest):
        say(f"{sentence} `agentops-memory doctor --fix` mends the database; keep an older archive.")


def _summary(manifest: Manifest) -> str:
    counts = [part.contents.counts for part in manifest.tenants]
    observations = counted(sum(it.observations for it in counts), "observation")
    sessions = counted(sum(it.sessions for it in counts), "session")
    entries = counted(sum(it.entries for it in counts), "entry", "entries")
    return (
        f"{counted(len(counts), 'tenant')} with {observations}, {sessions} and {entries} of stores"
    )
