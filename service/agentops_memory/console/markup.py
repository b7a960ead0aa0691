"""Stored text as HTML: nothing in it is markup, and nothing in it is invisible."""

import unicodedata
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import chain, groupby
from re import compile as pattern

from markupsafe import Markup, escape

from agentops_memory_client.contract.ages import JUST_NOW, age_words

from ..recall.visible import runs

# Bytes of HTML that a text may take, so that no page is over 300 KB; the twin has the rest.
MOST, MOST_OF_LINE, MOST_OF_DIFF = 200_000, 4_000, 30_000
MOST_PAIRS = 1_000_000  # of two texts' pieces that are compared; beyond, a text is replaced whole
PIECE = 64  # characters of a text that are escaped at a time
SNIPPET = 240  # characters of a memory in a list
AROUND = 240  # characters around a change

BROKEN_LINES = "\n\t"
_SIGN = Markup('<span class="sign" title="{}">{}</span>')
_CLIPPED = Markup('<span class="clipped">… {} more characters; the JSON below has all of it</span>')
_CHANGE = {"same": Markup("{}"), "del": Markup("<del>{}</del>"), "ins": Markup("<ins>{}</ins>")}
WORD = pattern(r"[^\W_]+")
_PIECES = pattern(r"\w+|\s+|[^\w\s]+")


def line(text: str, most: int = MOST_OF_LINE) -> Markup:
    """A text in one line, in isolation; a line break in it becomes a sign."""
    return Markup("<bdi>{}</bdi>").format(_clipped(text, most, ""))


def prose(text: str, most: int = MOST) -> Markup:
    """A text with its line breaks, in isolation; the end of a very long one is counted."""
    return Markup("<bdi>{}</bdi>").format(_clipped(text, most))


def snippet(text: str, most: int = 2_000) -> Markup:
    start = " ".join(text[: 2 * SNIPPET].split())
    return line(start if len(start) <= SNIPPET else f"{start[:SNIPPET]}…", most)


def highlighted(text: str, matched: Collection[str], most: int = MOST) -> Markup:
    parts, at, size = [], 0, 0
    for match in WORD.finditer(text):
        if match[0] not in matched:
            continue
        word = Markup("<mark>{}</mark>").format(_escaped(match[0], ""))
        parts += [_escaped(text[at : match.start()], BROKEN_LINES), word]
        at = match.end()
        size += sum(map(_size, parts[-2:]))
        if size > most:
            break
    parts.append(_clipped(text[at:], max(most - size, 0)))
    return Markup("<bdi>{}</bdi>").format(Markup().join(parts))


def size(count: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):,.1f} {unit}"
    return f"{count:,} bytes"


def ago(at: datetime, now: datetime) -> Markup:
    """An instant as its age, or as what is left until it, with the instant beside it."""
    seconds = (now - at).total_seconds()
    age = age_words(abs(seconds))
    if age != JUST_NOW:
        age = f"{age} ago" if seconds > 0 else f"in {age}"
    elif seconds < 0:
        age = "in less than a minute"
    utc = at.astimezone(UTC)
    template = Markup('<time datetime="{}">{} <span class="instant">{} UTC</span></time>')
    return template.format(f"{utc:%Y-%m-%dT%H:%M:%SZ}", age, f"{utc:%Y-%m-%d %H:%M}")


def compared(before: str, after: str, most: int = MOST_OF_DIFF) -> Markup:
    """What a change did, word by word, with a little of what stayed around it."""
    parts, size = [], 0
    runs_of_one = groupby(_changes(before, after), key=lambda change: change[0])
    pieces = [(kind, "".join(text for _, text in run)) for kind, run in runs_of_one]
    for number, (kind, text) in enumerate(pieces):
        head = text[:AROUND] if number else ""
        tail = text[-AROUND:] if number < len(pieces) - 1 else ""
        is_cut = kind == "same" and len(text) > len(head) + len(tail) + 1
        html = _escaped(f"{head} … {tail}" if is_cut else text, BROKEN_LINES)
        size += _size(html)
        if size > most:
            parts.append(Markup('<span class="clipped">… and more</span>'))
            break
        parts.append(_CHANGE[kind].format(html))
    return Markup("<bdi>{}</bdi>").format(Markup().join(parts))


def _changes(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Runs of text that stayed (`same`), went (`del`) and came (`ins`)."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    runs_of_lines = (
        _of_words(some, other) if some and other else [("del", some), ("ins", other)]
        for kind, some, other in _blocks(old, new)
        if kind or some
    )
    went = came = ""
    for kind, text in chain.from_iterable(runs_of_lines):
        if kind == "same" and not (text.isspace() and (went or came)):
            yield from _both(went, came)
            went = came = ""
            yield kind, text
        else:  # a blank between two changes is part of one
            went += text if kind != "ins" else ""
            came += text if kind != "del" else ""
    yield from _both(went, came)


def _both(went: str, came: str) -> Iterator[tuple[str, str]]:
    yield from ((kind, text) for kind, text in (("del", went), ("ins", came)) if text)


def _of_words(before: str, after: str) -> Iterator[tuple[str, str]]:
    if before == after:
        yield "same", before
        return
    for is_changed, old, new in _blocks(_PIECES.findall(before), _PIECES.findall(after)):
        yield from (("del", old), ("ins", new)) if is_changed else (("same", old),)


def _blocks(old: list[str], new: list[str]) -> Iterator[tuple[bool, str, str]]:
    """Blocks of both, each with whether they differ. Two that are too long are one block."""
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    yield False, "".join(old[:start]), "".join(new[:start])
    tail = "".join(old[len(old) - end :])
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) * len(new) > MOST_PAIRS:
        yield True, "".join(old), "".join(new)
    else:
        for kind, *(a, b, c, d) in SequenceMatcher(None, old, new).get_opcodes():
            yield kind != "equal", "".join(old[a:b]), "".join(new[c:d])
    yield False, tail, tail


def _common(old: list[str], new: list[str]) -> int:
    """How many pieces both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _clipped(text: str, most: int, allowed: Collection[str] = BROKEN_LINES) -> Markup:
    """As `_escaped`, but only as much as takes so many bytes, and how much is left out."""
    # Most texts in lists are so, and in pieces they take a page twice as long.
    if text.isascii() and text.isprintable() and len(whole := escape(text)) <= most:
        return whole
    parts, size, length = list[Markup](), 0, 0
    for html, count in _pieces(text, allowed):
        size += _size(html)
        if size > most:
            return Markup().join(parts) + _CLIPPED.format(f"{len(text) - length:,}")
        parts.append(html)
        length += count
    return Markup().join(parts)


def _size(html: Markup) -> int:
    return len(html.encode())


def _escaped(text: str, allowed: Collection[str]) -> Markup:
    """Escaped, with a sign for each character that nobody would see."""
    return Markup().join([html for html, _ in _pieces(text, allowed)])


def _pieces(text: str, allowed: Collection[str]) -> Iterator[tuple[Markup, int]]:
    """The same in small pieces, each with how many characters it shows.

    Hostile text can take forty times its length: a caller that needs only a part stops there.
    """
    for is_visible, run in runs(text):
        if is_visible:
            slices = (run[at : at + PIECE] for at in range(0, len(run), PIECE))
            yield from ((escape(it), len(it)) for it in slices)
            continue
        for sign, some in groupby(run):
            count = sum(1 for _ in some)
            yield (escape(sign * count) if sign in allowed else _signs(sign, count)), count


@lru_cache(1024)
def _signs(sign: str, count: int) -> Markup:
    code = f"U+{ord(sign):04X}"
    name = unicodedata.name(sign, "control character").lower()
    return _SIGN.format(name, code if count == 1 else f"{code} * {count:,}")
