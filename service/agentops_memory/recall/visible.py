"""Invisible characters, by which names must not differ and which must not control terminals.

Homoglyphs and spaces of any width count as visible.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby


def invisible(text: str) -> str:
    """Return the first invisible character as `U+200B`, or an empty text.

    Control and format characters, line separators, fillers and Unicode's
    Default_Ignorable_Code_Point are invisible. Joiners between letters of a script that needs
    them, and joiners and variation selectors in an emoji, are visible by their effect.
    """
    if text.isascii() and text.isprintable():
        return ""
    char = next((char for index, char in enumerate(text) if not _is_visible(text, index)), "")
    return f"U+{ord(char):04X}" if char else ""


def has_controls(text: str) -> bool:
    """Whether the text has a control character (C0, DEL or C1)."""
    return _CONTROLS.search(text) is not None


def printable(text: str) -> str:
    r"""Escape invisible characters as `\u200b`, for one line that is safe on a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if _is_visible(text, index) and (char.isprintable() or unicodedata.category(char) == "Cf")
        else f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
        for index, char in enumerate(text)
    )  # fmt: skip


def runs(text: str) -> Iterator[tuple[bool, str]]:
    """Split the text into runs of visible and of invisible characters: (is_visible, run)."""
    if text.isprintable() and text.isascii():
        yield True, text
        return
    for is_visible, run in groupby(range(len(text)), key=lambda index: _is_visible(text, index)):
        yield is_visible, "".join(text[index] for index in run)


def _is_visible(text: str, index: int) -> bool:
    char = text[index]
    if char.isascii():
        return char.isprintable()
    if unicodedata.category(char) not in _INVISIBLE and not _IGNORABLE.match(char):
        return True
    if char in _VISIBLE_FORMATS:
        return True
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if char in _SELECTORS:
        return bool(_EMOJI.match(before)) or (before in _KEYCAPS and after == _KEYCAP)
    if char not in _JOINERS:
        return False
    in_emoji = char == _ZWJ and (_EMOJI.match(before) or before in _SELECTORS)
    return bool(_EMOJI.match(after)) if in_emoji else _is_joining(before) and _is_joining(after)


def _is_joining(char: str) -> bool:
    return bool(_JOINING.match(char)) and unicodedata.category(char)[0] in "LM"


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp"}
_VISIBLE_FORMATS = frozenset(  # category Cf, but drawn around or over the following digits
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
# Default_Ignorable_Code_Point outside the category Cf, and two blank symbols.
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff\u2800\U0001d159]"
)
_ZWJ = "\u200d"
_JOINERS = {"\u200c", _ZWJ}
_SELECTORS = {"\ufe0e", "\ufe0f"}  # for the text and the color form of an emoji
_KEYCAPS, _KEYCAP = set("0123456789#*"), "\u20e3"
_EMOJI = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25aa-\u25fe"
    "\u2600-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
# Scripts whose letters change next to a joiner: Arabic and related scripts, scripts of India,
# Tibetan, Burmese, Khmer, Mongolian, scripts of South-East Asia, and their extensions.
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1700-\u18af\u1900-\u1cff\ua800-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
