"""`backup` and `restore`: all that a service keeps, in one archive, and put back."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...engine.files import drafts
from ...errors import Refusal
from ...memory.model.access import tenant_id
from ...memory.model.findings import some_of
from ...operations.backup import Manifest, Scope, make_archive
from ...operations.files.keys import KeyFile
from ...operations.restore import KeysPlan, Replacement, Restore, prepared
from ...recall.text.instants import rendered
from ...settings.settings import Settings
from ...sqlite.snapshots import Contents
from .. import options
from ..catalog import command, is_id
from ..errors import file_errors
from ..output import counted, is_terminal, one_line, print_table, progress_bar, say, size
from ..place import now, refuse_own, require_local_files, settings_of_files, user
from ..target import taken_from
from .memories import print_restored, restored

STDOUT = "-"


@command()
@options.setting_options("db_path", "keys_file", "redaction_file", "seal_file")
@options.to_option("PATH", "A file or a folder; - writes to standard output.")
@options.scope_option
@click.option("--keys", "with_keys", is_flag=True, help="Include the tenants' API keys.")
@click.option(
    "--without-seal", is_flag=True, help="Leave out the keys that decrypt confidential values."
)
@options.force_option
@options.json_option()
def backup(
    to: str,
    tenants: Sequence[str],
    with_keys: bool,
    without_seal: bool,
    force: bool,
    as_json: bool,
    **files: str | None,
) -> None:
    """Write the databases of all tenants into one archive, even while a service runs.

    It blocks no saves. The archive is verified before it gets its name, and only its
    owner can read it. `restore` restores it.
    """
    with file_errors():
        chosen = settings_of_files(files)
        refuse_own(to, chosen)
        require_local_files(chosen)
        named = tuple(map(tenant_id, dict.fromkeys(tenants)))
        scope = Scope(tenants=named, with_keys=with_keys, without_seal=without_seal)
        if to == STDOUT:
            _stream(chosen, scope)
        else:
            _write(chosen, Path(to), scope, force=force, as_json=as_json)


def _write(settings: Settings, to: Path, scope: Scope, *, force: bool, as_json: bool) -> None:
    with progress_bar("Backing up") as bar:
        archive = make_archive(settings, to, scope, now=now(), is_forced=force, progress=bar)
    manifest = archive.manifest
    if as_json:
        made = {"archive": str(archive.path), "bytes": archive.size}
        click.echo(json.dumps(made | manifest.document()))
    else:
        click.echo(one_line(f"Saved {_summary(manifest)}: {archive.path}, {size(archive.size)}."))
    _warn(manifest)


def _stream(settings: Settings, scope: Scope) -> None:
    if sys.stdout is None or is_terminal(sys.stdout):
        raise click.UsageError("An archive cannot be written to a terminal; name a file.")
    with progress_bar("Backing up") as bar, drafts(settings.db_path.parent) as own:
        made = make_archive(settings, own / "archive.zip", scope, now=now(), progress=bar)
        with made.path.open("rb") as source:
            shutil.copyfileobj(source, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    say(f"Saved {_summary(made.manifest)}.")
    _warn(made.manifest)


def _warn(manifest: Manifest) -> None:
    if manifest.damaged:
        say(
            f"{_damage(manifest)} `agentops-memory doctor --fix` repairs the database; keep an "
            "older archive until then."
        )


def _damage(manifest: Manifest) -> str:
    return one_line(f"Values in it are damaged: {some_of(manifest.damaged)}.")


def _summary(manifest: Manifest) -> str:
    counts = [part.counts for part in manifest.tenants]
    observations = counted(sum(it.observations for it in counts), "observation")
    sessions = counted(sum(it.sessions for it in counts), "session")
    entries = counted(sum(it.entries for it in counts), "entry", "entries")
    return (
        f"{counted(len(counts), 'tenant')} with {observations}, {sessions} and {entries} of stores"
    )


# Options of `restore` by what it brings back.
OF_ARCHIVES = (
    "with_keys", "force", "without_receipts", "dry_run", "keys_file", "redaction_file", "seal_file",
)  # fmt: skip
OF_A_MEMORY = ("revision", "url", "key_file", "tenant")
NOT_BOTH = {True: "the id of a memory", False: "an archive"}
HEADINGS = ("TENANT", "OBSERVATIONS", "SESSIONS", "STORES", "CHANGED", "CURRENT")
NOBODY_KNOWS = "The audit file does not reach back to the archive, so it is unknown which of "
NAMES = {"audit.jsonl": "audit file", "redaction.json": "redaction file", "seal.json": "seal file"}
MOST_IDS = 10  # that are shown of an erasure
# What takes out again what was erased, by the kind of the erasure.
AGAIN = {
    "observation": "DELETE /observations/ID?hard=true",
    "redaction": "agentops-memory scan --redact",
    "store": "DELETE the memory store, or redact the version, anew",
    "ref": "DELETE the entries of the ref anew",
    "subject": "POST /v1/host/agentops-memory/forget of the subject",
    "agent": "DELETE the entries anew, or agentops-memory agents erase AGENT",
}


@command()
@options.setting_options("db_path", "keys_file", "redaction_file", "seal_file")
@click.argument("what", metavar="ID|ARCHIVE", shell_complete=options.ids_or_files)
@click.option(
    "--revision", type=click.IntRange(1), metavar="NUMBER",
    help="For a memory: restore the text of this revision (`history` shows the numbers).",
)  # fmt: skip
@click.option("--keys", "with_keys", is_flag=True,
              help="For an archive: restore its keys that do not exist now.")  # fmt: skip
@click.option("--force", is_flag=True,
              help="For an archive: replace existing databases; the old files are kept next to "
              "them.")  # fmt: skip
@click.option(
    "--without-receipts",
    is_flag=True,
    help="For an archive: restore even if damaged receipts no longer show all later erasures.",
)
@click.option("--dry-run", is_flag=True,
              help="For an archive: show what would be done, and change nothing.")  # fmt: skip
@options.url_option
@options.key_file_option
@options.file_tenant_option
@options.json_option()
@click.pass_context
def restore(context: click.Context, /, what: str, as_json: bool, **given: Any) -> None:
    """Undelete the memory ID, or restore the databases in ARCHIVE.

    A number is always the ID of a memory; write ./12 for an archive named 12.

    The whole archive is verified before anything is replaced, and no service may be running
    on the database. Replaced files are kept next to it. Tenants that are not in the archive
    stay unchanged.
    """
    is_memory = is_id(what)
    for name in OF_ARCHIVES if is_memory else OF_A_MEMORY:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(it.opts[0] for it in context.command.params if it.name == name)
            kind = "an archive" if is_memory else "a memory"
            raise click.UsageError(f"{option} is for {kind}; {what} is {NOT_BOTH[is_memory]}.")
    where, revision = taken_from(given), given.pop("revision")
    if is_memory:
        memory = int(what.removeprefix("#"))
        print_restored(restored(memory, revision, where), as_json=as_json)
    else:
        _restore(what, as_json=as_json, db_path=where["db_path"], **given)


def _restore(
    archive: str,
    *,
    with_keys: bool,
    force: bool,
    without_receipts: bool,
    dry_run: bool,
    as_json: bool,
    **files: str | None,
) -> None:
    with file_errors():
        chosen = settings_of_files(files)
        require_local_files(chosen)
        with (
            progress_bar("Verifying") as bar,
            prepared(
                chosen, Path(archive), with_keys=with_keys, progress=bar, is_dry=dry_run
            ) as it,
        ):
            if not as_json:
                _show(it)
            kept = (
                []
                if dry_run
                else it.carry_out(
                    at=now(), by=user(), is_forced=force, without_receipts=without_receipts
                )
            )
            if as_json:
                click.echo(json.dumps({**_document(it, kept), "dry_run": dry_run}))
            else:
                _close(it, kept, dry_run=dry_run)
        if not dry_run:
            _note_if_lost(chosen)


def _note_if_lost(settings: Settings) -> None:
    file = KeyFile(settings.keys_file, settings.audit_file)
    try:
        file.require_kept(file.ring())
    except Refusal as refusal:
        say(f"Note: the service cannot start here yet. {refusal}")


def _print(sentence: str) -> None:
    """Print a sentence, whole: on a narrow terminal too its end is what matters."""
    click.echo(one_line(sentence))


def _show(plan: Restore) -> None:
    made_at, program = rendered(plan.manifest.made_at), one_line(plan.manifest.program)
    _print(f"An archive of {made_at}, made by agentops-memory {program}; all its files are intact.")
    print_table(HEADINGS, [_row(it) for it in plan.replacements])
    for sentence in _notes(plan):
        _print(sentence)


def _row(it: Replacement) -> tuple[object, ...]:
    part, now_there = it.part, "nothing"
    if it.is_done:
        now_there = "the same"
    elif it.now:
        observations = counted(it.now.counts.observations, "observation")
        now_there = f"{observations}, changed {_changed(it.now)}"
    elif it.is_there:
        now_there = f"unreadable data, {size(it.size)}"
    counts = (part.counts.observations, part.counts.sessions, part.counts.stores)
    return (part.tenant, *counts, _changed(part), now_there)


def _changed(contents: Contents) -> str:
    return rendered(contents.changed_at) if contents.changed_at else "-"


def _notes(plan: Restore) -> Iterator[str]:
    if plan.manifest.damaged:
        yield _damage(plan.manifest)
    for tenant in plan.left_out:
        yield f"The tenant {tenant} was erased after this archive was made, and stays erased."
    if plan.unsure:
        yield f"{NOBODY_KNOWS}these tenants were erased since: {', '.join(plan.unsure)}."
    for tenant in plan.staying:
        yield f"The tenant {tenant} is left unchanged."
    for name in plan.put_back:
        yield f"There is no {NAMES[name]} now; the archive's copy is restored."
    for it in plan.replacements:
        yield from _erased(it)
    if plan.keys:
        yield from _of_keys(plan.keys, is_known=plan.is_known)


def _erased(it: Replacement) -> Iterator[str]:
    tenant = it.part.tenant
    if it.is_there and it.now is None:
        yield (
            f"The database of {tenant} cannot be read, so it is unknown what was erased from it "
            "after the archive was made."
        )
    elif not it.is_all_erased:
        yield (
            f"Receipts of erasures in the database of {tenant} are damaged, so later erasures "
            "may be missing from them; erased data may come back with the archive."
        )
    for erasure in it.erased:
        ids = ", ".join(f"#{id_}" for id_ in erasure.memories[:MOST_IDS])
        of, again = ids or "entries", AGAIN.get(erasure.kind)
        if again is None:  # a project
            of = one_line(erasure.project)
            again = f"agentops-memory projects erase {shlex.quote(of)} --tenant {tenant}"
        yield (
            f"Erased after the archive was made, from {tenant}, at "
            f"{rendered(erasure.erased_at)}, and restored by the archive: {erasure.kind} {of}. "
            f"To erase again: {again}."
        )


def _of_keys(keys: KeysPlan, *, is_known: bool) -> Iterator[str]:
    if keys.opening and not is_known:
        yield f"{NOBODY_KNOWS}its keys were revoked since."
    for key in keys.opening:
        yield (
            f"The key {key.name} ({key.id}) gives access to the tenant {key.tenant} again, as "
            f"{key.role}."
        )
    for key in keys.ended:
        yield (
            f"The key {key.name} ({key.id}) was revoked or changed after the archive was "
            "made, and is not restored."
        )
    if keys.known:
        yield (
            f"Already present, and left unchanged: {counted(len(keys.known), 'key')} of the "
            "archive."
        )


def _close(plan: Restore, kept: Sequence[Path], *, dry_run: bool) -> None:
    if dry_run:
        _print("Nothing was changed.")
        return
    _print(f"Restored {counted(sum(not it.is_done for it in plan.replacements), 'tenant')}.")
    for file in kept:
        _print(f"The replaced file is kept: {file}.")


def _document(plan: Restore, kept: Sequence[Path]) -> dict[str, Any]:
    return {
        "archive": str(plan.archive),
        "made_at": rendered(plan.manifest.made_at),
        "tenants": [_of_tenant(it) for it in plan.replacements],
        "left_out": plan.left_out,
        "staying": plan.staying,
        "put_back": plan.put_back,
        "keys": plan.keys
        and {
            "opening": [key.id for key in plan.keys.opening],
            "staying_away": [key.id for key in plan.keys.ended],
            "known": [key.id for key in plan.keys.known],
        },
        "audit_reaches_back": plan.is_known,
        "kept": [str(file) for file in kept],
    }


def _of_tenant(it: Replacement) -> dict[str, Any]:
    return {
        "tenant": it.part.tenant,
        "database": str(it.path),
        "counts": it.part.counts.model_dump(),
        "is_there": it.is_there,
        "is_the_same": it.is_done,
        "counts_now": it.now and it.now.counts.model_dump(),
        "knows_all_erased_since": it.is_all_erased,
        "erased_since": [
            {
                "id": erasure.id,
                "kind": erasure.kind,
                "project": erasure.project,
                "observation_ids": erasure.memories,
                "erased_at": rendered(erasure.erased_at),
            }
            for erasure in it.erased
        ],
    }
