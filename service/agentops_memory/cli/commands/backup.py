"""`backup` and `restore`: all data of a service in one archive."""

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...memory.access import tenant_id
from ...memory.damage import some_of
from ...memory.rows import rendered
from ...operations.backup import Manifest, Scope, make_archive
from ...operations.restore import KeysPlan, Replacement, Restore, prepared
from ...sqlite.snapshots import Contents
from .. import output as out, target as o
from ..place import now, refuse_own, require_local_files, settings_of_files, user
from ..program import command, is_id
from .memories import restore_memory

_FILES = o.setting_options("db_path", "keys_file", "redaction_file", "seal_file")


@command(
    *_FILES,
    o.to_option(metavar="PATH", help="A file or a folder."),
    o.TENANTS,
    o.flag("--keys", "with_keys", help="Include the tenants' API keys."),
    o.flag("--without-seal", help="Leave out the keys that decrypt confidential values."),
    o.FORCE,
    o.json_option(),
)
def backup(to: str, tenants: Sequence[str], force: bool, **params: Any) -> None:
    """Write the databases of all tenants into one archive, even while a service runs.

    It blocks no saves. The archive is verified before it gets its name, and only its
    owner can read it. `restore` restores it.
    """
    keys, seal = params.pop("with_keys"), params.pop("without_seal")
    chosen = settings_of_files(params)
    refuse_own(to, chosen)
    require_local_files(chosen)
    tenant_ids = tuple(map(tenant_id, dict.fromkeys(tenants)))
    scope = Scope(tenants=tenant_ids, with_keys=keys, without_seal=seal)
    with out.progress_bar("Backing up") as bar:
        archive = make_archive(chosen, Path(to), scope, now=now(), is_forced=force, progress=bar)
    location = {"archive": str(archive.path), "bytes": archive.size}
    summary = f"Saved {_summary(archive.manifest)}: {archive.path}, {out.size(archive.size)}."
    out.print_result(location | archive.manifest.document(), out.one_line(summary))
    if archive.manifest.damaged:
        remedy = "`agentops-memory doctor --fix` repairs the database; keep an older archive"
        out.say(f"{_damage(archive.manifest)} {remedy} until then.")


def _damage(manifest: Manifest) -> str:
    return out.one_line(f"Values in it are damaged: {some_of(manifest.damaged)}.")


def _summary(manifest: Manifest) -> str:
    counts = [part.counts for part in manifest.tenants]
    tenants = out.counted(len(counts), "tenant")
    observations = out.counted(sum(it.observations for it in counts), "observation")
    sessions = out.counted(sum(it.sessions for it in counts), "session")
    entries = out.counted(sum(it.entries for it in counts), "entry", "entries")
    return f"{tenants} with {observations}, {sessions} and {entries} of stores"


# Options of `restore` that apply to an archive only, and to a memory only.
ARCHIVE_OPTIONS = (
    "with_keys", "force", "without_receipts", "dry_run", "keys_file", "redaction_file", "seal_file",
)  # fmt: skip
MEMORY_OPTIONS = ("revision", "url", "key_file", "tenant", "json")
HEADINGS = ("TENANT", "OBSERVATIONS", "SESSIONS", "STORES", "CHANGED", "CURRENT")
UNKNOWN = "The audit file does not reach back to the archive, so it is unknown which of "
NAMES = {"audit.jsonl": "audit file", "redaction.json": "redaction file", "seal.json": "seal file"}
MOST_IDS = 10  # most ids that are listed for an erasure
# How to repeat an erasure, by its kind.
REPEAT = {
    "observation": "DELETE /observations/ID?hard=true",
    "redaction": "agentops-memory scan --redact",
    "store": "DELETE the memory store, or redact the version, again",
    "ref": "DELETE the entries of the ref again",
    "subject": "POST /v1/host/agentops-memory/forget of the subject",
    "agent": "DELETE the entries again, or agentops-memory agents erase AGENT",
}


@command(
    *_FILES,
    o.argument("target", metavar="ID|ARCHIVE", shell_complete=o.ids_or_files),
    o.option(
        "--revision", type=click.IntRange(1), metavar="NUMBER",
        help="For a memory: restore the text of this revision (`history` shows the numbers).",
    ),
    o.flag("--keys", "with_keys", help="For an archive: restore its keys that do not exist now."),
    o.flag(
        "--force",
        help="For an archive: replace existing databases; the old files are kept next to them.",
    ),
    o.flag(
        "--without-receipts",
        help="For an archive: restore even if damaged receipts no longer show all later erasures.",
    ),
    o.flag("--dry-run", help="For an archive: show what would be done, and change nothing."),
    o.URL_OPTION, o.KEY_FILE, o.TENANT, o.json_option(help="For a memory: print it as JSON."),
)  # fmt: skip
def restore(target: str, **params: Any) -> None:
    """Undelete the memory ID, or restore the databases in ARCHIVE.

    A number is always the ID of a memory; write ./12 for an archive named 12.

    The whole archive is verified before anything is replaced, and no service may be running
    on the database. Replaced files are kept next to it. Tenants that are not in the archive
    stay unchanged.
    """
    context, is_memory = click.get_current_context(), is_id(target)
    for name in ARCHIVE_OPTIONS if is_memory else MEMORY_OPTIONS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(it.opts[0] for it in context.command.params if it.name == name)
            both = ("an archive", "the id of a memory") if is_memory else ("a memory", "an archive")
            raise click.UsageError(f"{option} is for {both[0]}; {target} is {both[1]}.")
    revision = params.pop("revision")
    if is_memory:
        restore_memory(int(target.removeprefix("#")), revision, params)
        return
    for name in ("url", "key_file", "tenant"):
        del params[name]
    _restore(target, **params)


def _restore(archive: str, *, dry_run: bool, **params: Any) -> None:
    force, lenient, with_keys = map(params.pop, ("force", "without_receipts", "with_keys"))
    chosen = settings_of_files(params)
    require_local_files(chosen)
    verified = partial(prepared, chosen, Path(archive), with_keys=with_keys, is_dry=dry_run)
    with out.progress_bar("Verifying") as bar, verified(progress=bar) as plan:
        made = f"{rendered(plan.manifest.made_at)}, made by {out.NAME} {plan.manifest.program}"
        click.echo(f"An archive of {out.one_line(made)}; all its files are intact.")
        out.print_table(HEADINGS, [_row(it) for it in plan.replacements])
        # Sentences are not cut at the terminal's width, because their end matters.
        closing = ["Nothing was changed."]
        for sentence in _notes(plan):
            click.echo(out.one_line(sentence))
        if not dry_run:
            carry_out = partial(plan.carry_out, is_forced=force, without_receipts=lenient)
            kept = carry_out(at=now(), by=user())
            count = out.counted(sum(not it.is_done for it in plan.replacements), "tenant")
            closing = [f"Restored {count}."]
            closing += [f"The replaced file is kept: {file}." for file in kept]
        click.echo("\n".join(map(out.one_line, closing)))


def _row(it: Replacement) -> tuple[object, ...]:
    part, current = it.part, "nothing"
    if it.is_done:
        current = "the same"
    elif it.now:
        observations = out.counted(it.now.counts.observations, "observation")
        current = f"{observations}, changed {_changed(it.now)}"
    elif it.is_there:
        current = f"unreadable data, {out.size(it.size)}"
    counts = (part.counts.observations, part.counts.sessions, part.counts.stores)
    return (part.tenant, *counts, _changed(part), current)


def _changed(contents: Contents) -> str:
    return rendered(contents.changed_at) if contents.changed_at else "-"


def _notes(plan: Restore) -> Iterator[str]:
    if plan.manifest.damaged:
        yield _damage(plan.manifest)
    for tenant in plan.left_out:
        yield f"The tenant {tenant} was erased after this archive was made, and stays erased."
    if plan.unsure:
        yield f"{UNKNOWN}these tenants were erased since: {', '.join(plan.unsure)}."
    for tenant in plan.staying:
        yield f"The tenant {tenant} is left unchanged."
    for name in plan.put_back:
        yield f"There is no {NAMES[name]} now; the archive's copy is restored."
    for it in plan.replacements:
        yield from _erased(it)
    if plan.keys:
        yield from _key_notes(plan.keys, is_known=plan.is_known)


def _key_notes(keys: KeysPlan, *, is_known: bool) -> Iterator[str]:
    if keys.opening and not is_known:
        yield f"{UNKNOWN}its keys were revoked since."
    for key in keys.opening:
        access = f"gives access to the tenant {key.tenant} again, as {key.role}"
        yield f"The key {key.name} ({key.id}) {access}."
    for key in keys.ended:
        ended = "was revoked or changed after the archive was made, and is not restored"
        yield f"The key {key.name} ({key.id}) {ended}."


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
        erased, again = ids or "entries", REPEAT.get(erasure.kind)
        if again is None:  # a project
            erased = out.one_line(erasure.project)
            again = f"agentops-memory projects erase {shlex.quote(erased)} --tenant {tenant}"
        yield (
            f"Erased after the archive was made, from {tenant}, at "
            f"{rendered(erasure.erased_at)}, and restored by the archive: {erasure.kind} {erased}. "
            f"To erase again: {again}."
        )
