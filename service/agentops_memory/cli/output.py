"""What commands print for people: lines, tables and progress, as wide as the terminal.

What is stored may hold anything, escapes of a terminal too: `one_line` and `lines` are harmless.
"""

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from agentops_memory_client.contract.ages import MINUTE, age_words
from agentops_memory_client.contract.models import Progress

from ..recall.text.visible import printable

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
TAB = 4
MOST_READ = 1024 * 1024  # bytes of standard input; the longest content has fewer
JUST_NOW = 5  # seconds
Rows = Sequence[Sequence[object]]
T = TypeVar("T")
R = TypeVar("R")


def show(text: str, indent: int = 0, **style: Any) -> None:
    click.secho(" " * indent + cut(text.rstrip(), _room(indent)), **style)


def is_piped() -> bool:
    """Whether something comes through standard input that is no terminal."""
    return not is_terminal(sys.stdin) and sys.stdin is not None


def read_piped() -> str:
    """The text of standard input, without the end of its last line."""
    if not is_piped():
        raise click.UsageError("- reads standard input, but standard input is empty.")
    content: bytes = sys.stdin.buffer.read(MOST_READ)
    return content.decode(errors="replace").removesuffix("\n").removesuffix("\r")


def ago(at: datetime) -> str:
    """`3 minutes ago`, `in 2 days`: for people; programs get the instant from --json."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < JUST_NOW:
        return "just now"
    is_short = abs(seconds) < MINUTE
    amount = counted(int(abs(seconds)), "second") if is_short else age_words(abs(seconds))
    return f"{amount} ago" if seconds > 0 else f"in {amount}"


def say(sentence: str) -> None:
    click.echo(sentence, err=True)


def confirm(question: str) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("Confirmation needs a terminal; add --yes to go ahead.")
    if not click.confirm(question, err=True):
        say("Nothing was changed.")
        sys.exit(1)


def print_table(headings: Sequence[str], rows: Rows, *, is_fitted: bool = True) -> None:
    """Print a table; one that is fitted to a terminal has bold headings and a cut last column.

    Not rich's: that shortens every column alike, ids too, and takes 50 ms to be there.
    """
    harmless = one_line if is_fitted else printable
    cells = [[harmless(str(cell)) for cell in row] for row in [headings, *rows]]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        *first, last = (padded(cell, wide) for cell, wide in zip(row, widths, strict=True))
        start = "".join(f"{cell}  " for cell in first)
        room = _room(width(start)) if is_fitted else None
        text = (start + cut(last.rstrip(), room)).rstrip()
        click.echo(click.style(text, bold=True) if is_fitted and number == 0 else text)


@contextmanager
def progress_bar(
    label: str, *, beside_output: bool = False, place: tuple[int, int] | None = None
) -> Iterator[Progress | None]:
    """The callback of a progress bar on standard error; None if nobody watches it.

    It gets how much is done, of how much, in any unit. A bar that is one of several for the
    steps of a command gets which step of how many it is, and leaves nothing behind. Nothing
    may be printed inside: the bar would be drawn over it.
    """
    if not is_terminal(sys.stderr) or (beside_output and is_terminal(sys.stdout)):
        yield None
        return
    from rich import progress as rich_progress  # noqa: PLC0415 - for a terminal alone: it takes 50 ms
    from rich.console import Console  # noqa: PLC0415

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TimeElapsedColumn(),
    )
    done, of = place or (0, None)
    with rich_progress.Progress(
        *columns, console=Console(stderr=True), redirect_stdout=False, transient=place is not None
    ) as bar:
        task = bar.add_task(label, completed=done, total=of)

        def advance(done: int, of: int | None) -> None:
            bar.update(task, completed=done, total=of)

        yield advance


def watched(label: str, every: Sequence[T], work: Callable[[T], R]) -> Iterator[R]:
    """What the work makes of each, with a bar of how many are done while it works."""
    for done, each in enumerate(every):
        with progress_bar(label, place=(done, len(every))):
            made = work(each)
        yield made


def one_line(text: str) -> str:
    """The text in one line, without anything that a terminal would obey."""
    return printable(" ".join(text.split()))


def lines(text: str) -> Iterator[str]:
    """The lines of a text, without anything that a terminal would obey."""
    for line in text.split("\n"):
        yield printable(line.rstrip("\r").expandtabs(TAB))


def width(text: str) -> int:
    return sum(map(_width, text))


def cut(text: str, room: int | None) -> str:
    """The text, at most so wide; an ellipsis stands for what is cut off."""
    if room is None or width(text) <= room:
        return text
    kept, left = "", max(room, 2) - 1
    for letter in text:
        left -= _width(letter)
        if left < 0:
            break
        kept += letter
    return kept.rstrip() + ELLIPSIS


def padded(text: str, room: int) -> str:
    return text + " " * (room - width(text))


def size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    amount, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB"):
        if amount >= 1024:
            amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 session`, `2 sessions`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def count_memories(count: int) -> str:
    return counted(count, "memory", "memories")


def is_terminal(stream: Any) -> bool:
    return bool(stream is not None and not stream.closed and stream.isatty())


def _room(taken: int) -> int | None:
    """The columns that are left in a line of the terminal; of what is none, no number."""
    if not is_terminal(sys.stdout):
        return None
    return shutil.get_terminal_size().columns - taken


def _width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
