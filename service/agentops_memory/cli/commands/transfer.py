"""`export` and `import`: all that is stored, as a file of JSON and back."""

import codecs
import json
import os
import select
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, aclosing, contextmanager, nullcontext
from io import BufferedReader, UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from agentops_memory_client.contract.errors import MemoryServiceError

from ...domain.errors import Invalid
from ..errors import FileRefused, FileThere, NotWhole, failures
from ..json_output import print_json
from ..output import columns, counted, is_terminal, one_line, show
from ..output_file import refuse_own, written
from ..progress import watched
from ..service_files import say
from ..target import Memories, Reach, asked, of_a_project, reaching

# The rest is imported by the commands that need it: the other commands would wait for it.
if TYPE_CHECKING:
    from agentops_memory_client.contract.models import ImportConflict, Imported, ImportPlan

# Completed as a path; what is wrong with one is told as of any file, and not as wrong use.
FILE = click.Path(allow_dash=True, readable=False)
PIECE = 64 * 1024  # bytes, as many as a pipe holds
SIGNALS = 1.0  # seconds, after which they are handled at the latest
# By the reason of a conflict and what is kept of it.
CONFLICTS = {
    ("changed", "stored"): "{other} says something else by now, and stays",
    ("topic_key", "stored"): "{other} has its topic key, is not older, and stays",
    ("topic_key", "imported"): "it takes the place of {other}, which has its topic key and is "
    "older",
}
IN_CONFLICT = "{other} is in conflict with it"  # as only another version can tell


@click.command(short_help="Write all that is stored, as JSON.")
@click.argument("file", required=False, default="-", type=FILE)
@of_a_project
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@reaching
def export(file: str, project: str | None, force: bool, **where: str | None) -> None:
    """Write every session and observation, of the project or of all, to FILE.

    Without a file, or with -, to standard output. A file is there at the end,
    whole, and for its owner alone to read.
    """
    with failures():
        _require_writable(file, Reach.of(where), force=force)
    if project:
        say(f"Only the project {one_line(project)} is exported.")

    async def work(memories: Memories) -> None:
        with (
            written(file) as target,
            watched("exporting", beside_output=file == "-") as progress,
        ):
            async with aclosing(_to_the_end(memories.export(project, progress=progress))) as pieces:
                await _pour(pieces, target)

    asked(where, work)


@click.command("import", short_help="Store what an export holds.")
@click.argument("file", type=FILE)
@click.option("--dry-run", is_flag=True, help="Tell what would be stored, and store nothing.")
@reaching
@click.option("--json", "as_json", is_flag=True, help="Print the JSON of the REST API.")
def import_(file: str, dry_run: bool, as_json: bool, **where: str | None) -> None:
    """Store what the export in FILE holds and is not there yet, whole or not at all.

    FILE is an export of this service, or one of engram; - is standard input.
    What is there already is left alone, so an import can be repeated.
    """
    with failures(), _document(file, Reach.of(where)) as path:
        if dry_run:
            _print_plan(asked(where, lambda it: _planned(it, path)), as_json=as_json)
        else:
            imported = asked(where, lambda it: _imported(it, path), may_make=True)
            _print_imported(imported, as_json=as_json)


async def _planned(memories: Memories, path: Path) -> "ImportPlan":
    with watched("looking") as progress:
        return await memories.plan_import(path, progress=progress)


async def _imported(memories: Memories, path: Path) -> "Imported":
    with watched("importing") as progress:
        return await memories.import_from(path, progress=progress)


async def _to_the_end(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The pieces; what goes wrong after the first of them is NotWhole."""
    is_begun = False
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                is_begun = True
                yield piece
    except MemoryServiceError as error:
        if not is_begun:
            raise
        raise NotWhole(f"The export is not whole: {error}") from error


async def _pour(pieces: AsyncGenerator[bytes, None], target: BinaryIO) -> None:
    if is_terminal(target):
        await _show(pieces)
        return
    from asyncio import to_thread  # noqa: PLC0415

    async for piece in pieces:
        await to_thread(target.write, piece)


async def _show(pieces: AsyncGenerator[bytes, None]) -> None:
    """Print JSON; what a terminal would obey can stand in its strings alone, and is escaped."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for piece in pieces:
        text = decoder.decode(piece)
        click.echo(
            "".join(it if it.isprintable() else json.dumps(it)[1:-1] for it in text), nl=False
        )
    click.echo()


def _require_writable(file: str, reach: Reach, *, force: bool) -> None:
    """Refuse a file that is there, or that is the service's own."""
    if file == "-":
        return
    if reach.url is None:
        refuse_own(file, reach.place)
    target = Path(file)
    if target.is_dir():
        raise FileRefused(f"{target} is a folder; an export is a file.")
    if target.is_file() and not force:
        raise FileThere(f"{target} is there already.")


@contextmanager
def _document(file: str, reach: Reach) -> Iterator[Path]:
    """The file with a document of ours: the one that was named, or one that is made of it."""
    from ..engram import converted, is_engram  # noqa: PLC0415

    with _opened(file, reach) as (source, path):
        try:
            is_of_engram = is_engram(source)
        except Invalid as error:
            raise FileRefused(f"{file} is no export: {error}") from error
        if not is_of_engram:
            yield path
            return
        left_out: Counter[str] = Counter()
        with _aside(reach, lambda file: file.writelines(converted(source, left_out))) as target:
            _tell(left_out)
            yield Path(target.name)


@contextmanager
def _opened(file: str, reach: Reach) -> Iterator[tuple[BinaryIO, Path]]:
    """The file, and where it is; of what can be read only once, a copy."""
    with _source(file) as source:
        if file != "-" and stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            yield source, Path(file)
            return
        with _aside(reach, lambda file: file.writelines(_arriving(source))) as copy:
            yield copy, Path(copy.name)


def _arriving(source: BinaryIO) -> Iterator[bytes]:
    """The pieces of a pipe, whose end can be long in coming.

    A signal that comes just before a read blocks is handled after it: so none blocks for long.
    """
    read1 = cast(BufferedReader, source).read1
    while True:
        while not _has_come(source):
            pass
        if not (piece := read1(PIECE)):
            return
        yield piece


def _has_come(source: BinaryIO) -> bool:
    try:
        return bool(select.select([source], [], [], SIGNALS)[0])
    except UnsupportedOperation:  # it is in memory
        return True


def _source(file: str) -> AbstractContextManager[BinaryIO]:
    if file == "-":
        if sys.stdin is None or is_terminal(sys.stdin):
            raise click.UsageError("- is standard input, and nothing comes from there.")
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise FileRefused(f"{file} cannot be read: {error.strerror}.") from error


@contextmanager
def _aside(reach: Reach, fill: Callable[[BinaryIO], None]) -> Iterator[BinaryIO]:
    """A file of what fill writes, gone at the end: a pod may have no folder but the database's."""
    folder = None if reach.url else reach.place.db_path.parent
    with ExitStack() as stack:
        try:
            beside = folder if folder and folder.is_dir() else None
            made = stack.enter_context(tempfile.NamedTemporaryFile(dir=beside, prefix=".import-"))
            file = cast(BinaryIO, made)
            fill(file)
            file.flush()
        except OSError as error:
            sentence = f"A copy of the document cannot be made: {error.strerror}."
            raise FileRefused(sentence) from error
        yield file


def _tell(left_out: Counter[str]) -> None:
    from ..engram import LEFT_OUT  # noqa: PLC0415

    said = [counted(left_out[why], noun) for why, noun in LEFT_OUT.items() if left_out[why]]
    say(f"An export of engram. Left out of it: {', '.join(said) or 'nothing'}.")


def _print_imported(imported: "Imported", *, as_json: bool) -> None:
    if as_json:
        print_json(imported)
    else:
        observations = counted(imported.imported_observations, "observation")
        show(f"Imported {observations} and {counted(imported.imported_sessions, 'session')}.")
    if imported.goes_on:
        say("The rest is accepted, and follows by itself when the database can be written again.")
    if imported.redacted:
        say(f"Kept out of it: {counted(imported.redacted, 'secret')}.")


def _print_plan(plan: "ImportPlan", *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    columns(
        ("", "NEW", "BACK", "SAME", "CONFLICTING"),
        [
            ("sessions", plan.new_sessions, "", plan.same_sessions, plan.conflicting_sessions),
            ("observations", plan.new_observations, plan.restored_observations,
             plan.same_observations, plan.conflicting_observations),
        ],
    )  # fmt: skip
    for conflict in plan.conflicts:
        show(_told(conflict))
    more = plan.conflicting_observations - len(plan.conflicts)
    if more > 0:
        show(f"... and {more:,} more")


def _told(conflict: "ImportConflict") -> str:
    other = f"#{conflict.id}" if conflict.id else "an earlier one of the document"
    outcome = CONFLICTS.get((conflict.reason, conflict.kept), IN_CONFLICT).format(other=other)
    name = f"{conflict.title} ({conflict.project})"
    return one_line(f"observations[{conflict.place}] {name}: {outcome}")
