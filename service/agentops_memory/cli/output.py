"""What commands print for people: lines and tables, as wide as the terminal.

What is stored may hold anything, escapes of a terminal too: `one_line` and `lines` are harmless.
"""

import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ..domain.text.visible import printable

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
TAB = 4
SIZES = ("bytes", "KiB", "MiB", "GiB")


def show(text: str, indent: int = 0, **style: Any) -> None:
    """Print a line, cut to the terminal if there is one."""
    click.secho(" " * indent + cut(text.rstrip(), _room(indent)), **style)


def columns(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; its last column is cut to the terminal if there is one."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(headings, *cells, strict=True)]
    for number, row in enumerate([list(headings), *cells]):
        *first, last = (padded(cell, wide) for cell, wide in zip(row, widths, strict=True))
        start = "".join(f"{cell}  " for cell in first)
        text = start + cut(last.rstrip(), _room(width(start)))
        click.echo(click.style(text.rstrip(), bold=True) if number == 0 else text.rstrip())


def one_line(text: str) -> str:
    """The text in one line, without anything that a terminal would obey."""
    return printable(" ".join(text.split()))


def lines(text: str) -> Iterator[str]:
    """The lines of a text, without anything that a terminal would obey."""
    for line in text.split("\n"):
        yield printable(line.rstrip("\r").expandtabs(TAB))


def width(text: str) -> int:
    """The columns that a text takes on a terminal."""
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
    """A number of bytes as people say it."""
    amount, unit = float(count), SIZES[0]
    for unit in SIZES:
        if amount < 1024 or unit == SIZES[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == SIZES[0] else f"{amount:.1f} {unit}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 session`, `2 sessions`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def is_terminal(stream: Any) -> bool:
    """Whether somebody watches; a stream may be closed, or none."""
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
