"""`export` and `import`: all sessions and observations, as a JSON file."""

import asyncio
import os
import select
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from io import BufferedReader, UnsupportedOperation
from pathlib import Path
from typing import BinaryIO, cast

import click

from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.models import MemoryServiceError
from agentops_memory_client.contract.service import MemoryService

from ...engine.files import os_errors_as
from .. import output as out
from ..place import output_file, refuse_own
from ..program import command
from ..target import ANSWER, FORCE, PROJECT_OPTION, TARGET, Target, argument, flag, run_on_target

# Shells complete it as a path. click does not check it: a bad file is no usage error.
FILE = click.Path(allow_dash=True, readable=False)
PIECE = 64 * 1024  # bytes, the capacity of a pipe
SIGNAL_DELAY = 1.0  # seconds until a signal is handled, at most


@command(
    argument("file", required=False, default="-", type=FILE), PROJECT_OPTION, FORCE, *TARGET
)  # fmt: skip
def export(file: str, project: str | None, force: bool, **where: str | None) -> None:
    """Write every session and observation of the project, or of all projects, to FILE.

    Without FILE, or with -, it writes to standard output. A file appears only when it
    is complete, and only its owner can read it.
    """
    target, path = Target.of(where), Path(file)
    if file == "-" and out.is_terminal(sys.stdout):
        raise click.UsageError("An export is long JSON: name a FILE, or redirect the output.")
    if file != "-" and target.url is None:
        refuse_own(file, target.settings)
    if file != "-" and path.is_file() and not force:
        raise out.CommandRefused(f"{path} already exists.", "FileThere")
    if project:
        out.say(f"Only the project {out.one_line(project)} is exported.")

    async def work(memories: MemoryService) -> None:
        has_begun = False
        with output_file(file) as output, out.progress_bar("Exporting") as progress:
            try:
                async with aclosing(memories.export(project, progress=progress)) as pieces:
                    async for piece in pieces:
                        has_begun = True
                        await asyncio.to_thread(output.write, piece)
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

    - reads standard input. Existing rows are skipped, so you can repeat an import, also to
    complete one that was interrupted.
    """
    with _document(file, Target.of(where)) as path:

        async def work(memories: MemoryService) -> m.Imported | m.ImportPlan:
            do = memories.plan_import if dry_run else memories.import_from
            with out.progress_bar("Checking" if dry_run else "Importing") as progress:
                return await do(path, progress=progress)

        done = run_on_target(where, work, may_make=not dry_run, may_be_missing=dry_run)
        _print_done(done)


@contextmanager
def _document(file: str, target: Target) -> Iterator[Path]:
    """Yield the path of the document: the named file, or a copy of what can be read only once."""
    with ExitStack() as stack:
        if file != "-":
            with os_errors_as(out.FileRefused, f"{file} cannot be read"):
                source: BinaryIO = stack.enter_context(Path(file).open("rb"))
        elif sys.stdin is None or out.is_terminal(sys.stdin):
            raise click.UsageError("- reads standard input, but standard input is empty.")
        else:
            source = sys.stdin.buffer
        if file != "-" and stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            yield Path(file)
            return
        # In some pods, only the folder of the database can be written to.
        with os_errors_as(out.FileRefused, "A copy of the document cannot be made"):
            copy = stack.enter_context(
                tempfile.NamedTemporaryFile(dir=target.scratch, prefix=".import-")
            )
            copy.writelines(_arriving(source))
            copy.flush()
        yield Path(copy.name)


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
        for it in done.conflicts:
            other = f"#{it.id}" if it.id else "an earlier observation of the document"
            reason = it.reason.replace("_", " ")
            outcome = f"conflicts with {other} ({reason}); the {it.kept} one is kept"
            out.show(out.one_line(f"observations[{it.place}] {it.title} ({it.project}): {outcome}"))
        if (more := done.conflicting_observations - len(done.conflicts)) > 0:
            out.show(f"... and {more:,} more")
    if isinstance(done, m.Imported) and done.refused_supersessions:
        observations = out.counted(done.refused_supersessions, "observation")
        out.say(f"Stored without their supersedes links, which are not allowed: {observations}.")
    if isinstance(done, m.Imported) and done.redacted:
        out.say(f"Secrets removed: {out.counted(done.redacted, 'secret')}.")
