"""Invisible characters: names must not differ by one, nor a terminal obey one.

Homoglyphs count as visible, and so do spaces of any width.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby


def invisible(text: str) -> str:
    """The first invisible character, as `U+200B`; empty if there is none.

    Invisible are control and format characters, line separators, fillers and Unicode's
    Default_Ignorable_Code_Point. Visible by their effect are joiners between letters of
    a script that needs them, and joiners and variation selectors in an emoji.
    """
    if text.isascii() and text.isprintable():
        return ""
    sign = next((sign for index, sign in enumerate(text) if not _is_visible(text, index)), "")
    return f"U+{ord(sign):04X}" if sign else ""


def has_controls(text: str) -> bool:
    """Whether there is a control character (C0, DEL, C1)."""
    return _CONTROLS.search(text) is not None


def printable(text: str) -> str:
    r"""The text as one line, safe for a terminal: invisible characters are escaped as `\u200b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        sign
        if _is_visible(text, index) and (sign.isprintable() or unicodedata.category(sign) == "Cf")
        else f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
        for index, sign in enumerate(text)
    )  # fmt: skip


def runs(text: str) -> Iterator[tuple[bool, str]]:
    """The text in runs of characters, each with whether they are visible."""
    if text.isprintable() and text.isascii():
        yield True, text
        return
    places = groupby(range(len(text)), key=lambda index: _is_visible(text, index))
    for is_visible, run in places:
        yield is_visible, "".join(text[index] for index in run)


def _is_visible(text: str, index: int) -> bool:
    sign = text[index]
    if sign.isascii():
        return sign.isprintable()
    if unicodedata.category(sign) not in _UNSEEN and not _IGNORABLE.match(sign):
        return True
    if sign in _VISIBLE_FORMATS:
        return True
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if sign in _SELECTORS:
        return bool(_EMOJI.match(before)) or (before in _KEYCAPS and after == _KEYCAP)
    if sign not in _JOINERS:
        return False
    in_emoji = sign == _ZWJ and (_EMOJI.match(before) or before in _SELECTORS)
    return bool(_EMOJI.match(after)) if in_emoji else _is_joining(before) and _is_joining(after)


def _is_joining(sign: str) -> bool:
    return bool(_JOINING.match(sign)) and unicodedata.category(sign)[0] in "LM"


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_UNSEEN = {"Cc", "Cf", "Zl", "Zp"}
_VISIBLE_FORMATS = frozenset(  # of the category Cf, but signs round or over the next numbers
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
# Default_Ignorable_Code_Point beyond the category Cf, and two signs that are blank.
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff\u2800\U0001d159]"
)
_ZWJ = "\u200d"
_JOINERS = {"\u200c", _ZWJ}
_SELECTORS = {"\ufe0e", "\ufe0f"}  # of the plain and of the coloured form of an emoji
_KEYCAPS, _KEYCAP = set("0123456789#*"), "\u20e3"
_EMOJI = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25aa-\u25fe"
    "\u2600-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
# Scripts whose letters have other forms beside a joiner: Arabic and its kin, those of India,
# Tibetan, Burmese, Khmer, Mongolian, those of the south-east, and their extensions.
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1700-\u18af\u1900-\u1cff\ua800-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
