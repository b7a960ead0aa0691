"""`export` and `import`: all sessions and observations, as a JSON file."""

import asyncio
import codecs
import json
import os
import select
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager, suppress
from io import BufferedReader, UnsupportedOperation
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import UUID, uuid5

import click

from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.models import MemoryServiceError
from agentops_memory_client.contract.service import MemoryService

from ...engine.files import os_errors_as
from ...errors import Invalid
from ...http.query import entries, members
from ...memory.redactor import MAX_CONTENT, MAX_TAG, MAX_TITLE
from ...memory.space import UNKNOWN_PROJECT
from .. import output as out
from ..place import output_file, refuse_own
from ..program import command
from ..target import ANSWER, FORCE, PROJECT_OPTION, TARGET, Target, argument, flag, run_on_target

# The conversion of an Engram export into an export of this service. Rows that are left out are
# counted. Engram has its own ids, and times in a form that an import reads. The functions do no I/O
# but read the file.
ENGRAM_ONLY = {"version", "prompts"}  # an export of this service does not have them
LISTS = {"sessions", "observations", "prompts"}
LEFT_OUT = {  # reasons, and their nouns in messages
    "prompts": "prompt", "personal": "personal observation", "deleted": "deleted observation",
    "cut": "overlong ending",
}  # fmt: skip

CUT = "... [truncated]"  # Engram's mark of a text cut at 50,000 bytes
_IDS = UUID("5b0e4bd8-7f0c-5d5e-9d0a-6a8f2f0f6f5e")  # UUID namespace of observations
_KEPT = (
    "session_id", "type", "title", "content", "scope", "topic_key", "revision_count",
    "duplicate_count", "last_seen_at", "created_at", "updated_at",
)  # fmt: skip


def is_engram(file: BinaryIO) -> bool:
    """Whether the document has the shape of an Engram export."""
    names: set[str] = set()
    for name, _, value in members(file):
        if name == "observations" and isinstance(value, dict):
            return "uid" not in value and (
                bool(names & ENGRAM_ONLY) or any(it in ENGRAM_ONLY for it, _, _ in members(file))
            )
        names |= {name} & (ENGRAM_ONLY | LISTS)
    return bool(names & ENGRAM_ONLY) and bool(names & LISTS)


def converted(file: BinaryIO, left_out: Counter[str]) -> Iterator[bytes]:
    """Convert an Engram export, piece by piece; count what is left out in `left_out`."""
    projects: dict[object, object] = {}
    yield b'{"sessions":['
    comma = b""
    for _, _, row in entries(file, ("sessions",)):
        if isinstance(row, dict):
            session = {name: row.get(name) for name in ("id", "summary", "started_at", "ended_at")}
            session["project"] = row.get("project") or UNKNOWN_PROJECT
            projects[_hashable(row.get("id"))] = session["project"]
        yield comma + json.dumps(session if isinstance(row, dict) else row).encode()
        comma = b","
    yield b'],"observations":['
    comma = b""
    for name, _, row in entries(file, ("observations", "prompts")):
        if reason := _why_left_out(name, row):
            left_out[reason] += 1
            continue
        if isinstance(row, dict):
            limits = (("title", MAX_TITLE), ("content", MAX_CONTENT))
            cut = (_shortened(row.get(name), most) != row.get(name) for name, most in limits)
            left_out["cut"] += any(cut)
            row = _observation(row, projects)  # noqa: PLW2901 - the converted row
        yield comma + json.dumps(row).encode()
        comma = b","
    yield b"]}"


def _observation(row: Mapping[str, Any], projects: Mapping[object, object]) -> dict[str, Any]:
    project = row.get("project") or projects.get(_hashable(row.get("session_id")))
    tool, first_line = row.get("tool_name"), row.get("content")
    if isinstance(first_line, str):
        first_line = first_line.strip().partition("\n")[0][:MAX_TITLE]
    identity = [row.get(name) for name in ("session_id", "id", "created_at")]
    uid = str(uuid5(_IDS, json.dumps(identity, default=str)))
    has_uid = row.get("id") is not None and not row.get("topic_key")
    return {name: row.get(name) for name in _KEPT} | {
        "uid": uid if has_uid else None,
        "title": _shortened(row.get("title"), MAX_TITLE) or first_line,
        "content": _shortened(row.get("content"), MAX_CONTENT),
        "project": project or UNKNOWN_PROJECT,
        "tags": [tool[:MAX_TAG]] if isinstance(tool, str) and tool.strip() else None,
    }


def _why_left_out(name: str, row: object) -> str | None:
    if name == "prompts":
        return "prompts"
    if not isinstance(row, dict):
        return None  # the import refuses it
    if row.get("deleted_at"):
        return "deleted"
    scope = row.get("scope")
    is_personal = isinstance(scope, str) and scope.strip().lower() == "personal"
    return "personal" if is_personal else None


def _shortened(text: object, most: int) -> object:
    if not isinstance(text, str) or len(text) <= most:
        return text
    return text[: most - len(CUT)] + CUT


def _hashable(id_: object) -> object:
    return id_ if isinstance(id_, str) else None


# Shells complete it as a path. click does not check it: a bad file is no usage error.
FILE = click.Path(allow_dash=True, readable=False)
PIECE = 64 * 1024  # bytes, the capacity of a pipe
SIGNAL_DELAY = 1.0  # seconds until a signal is handled, at most
# Messages by the reason of a conflict and the observation that is kept.
CONFLICTS = {
    ("changed", "stored"): "{other} has different content, and is kept",
    ("topic_key", "stored"): "{other} has the same topic key, is not older, and is kept",
    ("topic_key", "imported"): "it replaces {other}, which has the same topic key and is older",
}
IN_CONFLICT = "{other} is in conflict with it"  # for a reason that only another version knows


@command(
    argument("file", required=False, default="-", type=FILE), PROJECT_OPTION, FORCE, *TARGET
)  # fmt: skip
def export(file: str, project: str | None, force: bool, **where: str | None) -> None:
    """Write every session and observation of the project, or of all projects, to FILE.

    Without FILE, or with -, it writes to standard output. A file appears only when it
    is complete, and only its owner can read it.
    """
    target, path = Target.of(where), Path(file)
    if file != "-" and target.url is None:
        refuse_own(file, target.settings)
    if file != "-" and path.is_file() and not force:
        raise out.CommandRefused(f"{path} already exists.", "FileThere")
    if project:
        out.say(f"Only the project {out.one_line(project)} is exported.")

    async def work(memories: MemoryService) -> None:
        has_begun, decoder = False, codecs.getincrementaldecoder("utf-8")("replace")
        bar = out.progress_bar("Exporting", is_output_shown=file == "-")
        with output_file(file) as output, bar as progress:
            is_shown = out.is_terminal(output)
            try:
                async with aclosing(memories.export(project, progress=progress)) as pieces:
                    async for piece in pieces:
                        has_begun = True
                        written = _escaped(decoder.decode(piece)) if is_shown else piece
                        await asyncio.to_thread(output.write, written)
                    output.write(b"\n" * is_shown)
            except MemoryServiceError as error:
                if not has_begun:
                    raise
                sentence = f"The export is incomplete: {error}"
                raise out.CommandRefused(sentence, "NotWhole") from error
            progress(1, 1)  # the total is unknown before the end

    run_on_target(where, work)


@command(
    argument("file", type=FILE),
    flag("--dry-run", help="Show what would be stored, and store nothing."),
    *ANSWER,
)
def import_(file: str, dry_run: bool, **where: str | None) -> None:
    """Store everything in the export FILE that is not stored yet.

    FILE is an export of this service or of engram; - reads standard input. Existing rows are
    skipped, so you can repeat an import, also to complete one that was interrupted.
    """
    with _document(file, Target.of(where)) as path:

        async def work(memories: MemoryService) -> m.Imported | m.ImportPlan:
            do = memories.plan_import if dry_run else memories.import_from
            with out.progress_bar("Checking" if dry_run else "Importing") as progress:
                return await do(path, progress=progress)

        done = run_on_target(where, work, may_make=not dry_run, may_be_missing=dry_run)
        _print_done(done)


def _escaped(text: str) -> bytes:
    """Escape the control characters of JSON, which only strings can contain."""
    return "".join(it if it.isprintable() else json.dumps(it)[1:-1] for it in text).encode()


@contextmanager
def _document(file: str, target: Target) -> Iterator[Path]:
    """Yield the path of an export of this service: the named file, or a temporary copy.

    A copy is made of what can be read only once, and of another program's export, converted.
    """
    with ExitStack() as stack:
        if file != "-":
            with os_errors_as(out.FileRefused, f"{file} cannot be read"):
                source: BinaryIO = stack.enter_context(Path(file).open("rb"))
        elif sys.stdin is None or out.is_terminal(sys.stdin):
            raise click.UsageError("- reads standard input, but standard input is empty.")
        else:
            source = sys.stdin.buffer
        if file == "-" or not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            source = stack.enter_context(_temporary(target, _arriving(source)))
        try:
            is_of_engram = is_engram(source)
        except Invalid as error:
            raise out.FileRefused(f"{file} is not an export: {error}") from error
        if is_of_engram:
            left_out: Counter[str] = Counter()
            source = stack.enter_context(_temporary(target, converted(source, left_out)))
            parts = [out.counted(left_out[it], LEFT_OUT[it]) for it in LEFT_OUT if left_out[it]]
            out.say(f"This is an Engram export. Not imported: {', '.join(parts) or 'nothing'}.")
        yield Path(source.name)


def _arriving(source: BinaryIO) -> Iterator[bytes]:
    """Yield the pieces of a pipe, which may stay open for a long time.

    Python handles a signal that arrives just before a read only after it, so no read blocks long.
    """
    piece = b" "
    while piece:
        with suppress(UnsupportedOperation):  # a stream in memory cannot be selected
            while not select.select([source], [], [], SIGNAL_DELAY)[0]:
                pass
        piece = cast(BufferedReader, source).read1(PIECE)
        yield piece


@contextmanager
def _temporary(target: Target, pieces: Iterable[bytes]) -> Iterator[BinaryIO]:
    """Write the pieces to a temporary file, in the only folder that some pods can write to."""
    with ExitStack() as stack:
        with os_errors_as(out.FileRefused, "A copy of the document cannot be made"):
            temporary = stack.enter_context(
                tempfile.NamedTemporaryFile(dir=target.scratch, prefix=".import-")
            )
            file = cast(BinaryIO, temporary)
            file.writelines(pieces)
            file.flush()
        yield file


def _print_done(done: m.Imported | m.ImportPlan) -> None:
    if out.has_flag("json"):
        out.print_json(done)
    elif isinstance(done, m.Imported):
        observations = out.counted(done.imported_observations, "observation")
        out.show(f"Imported {observations} and {out.counted(done.imported_sessions, 'session')}.")
    else:
        out.print_table(("", "NEW", "BACK", "SAME", "CONFLICTING"), [
            ("sessions", done.new_sessions, "", done.same_sessions, done.conflicting_sessions),
            ("observations", done.new_observations, done.restored_observations,
             done.same_observations, done.conflicting_observations),
        ])  # fmt: skip
        for conflict in done.conflicts:
            out.show(_sentence(conflict))
        if (more := done.conflicting_observations - len(done.conflicts)) > 0:
            out.show(f"... and {more:,} more")
    if isinstance(done, m.Imported) and done.refused_supersessions:
        observations = out.counted(done.refused_supersessions, "observation")
        out.say(f"Stored without their supersedes links, which are not allowed: {observations}.")
    if isinstance(done, m.Imported) and done.redacted:
        out.say(f"Secrets removed: {out.counted(done.redacted, 'secret')}.")


def _sentence(conflict: m.ImportConflict) -> str:
    other = f"#{conflict.id}" if conflict.id else "an earlier observation of the document"
    outcome = CONFLICTS.get((conflict.reason, conflict.kept), IN_CONFLICT).format(other=other)
    name = f"{conflict.title} ({conflict.project})"
    return out.one_line(f"observations[{conflict.place}] {name}: {outcome}")
