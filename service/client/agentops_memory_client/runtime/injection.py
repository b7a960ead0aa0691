"""What the service remembers, as the text that goes into a prompt."""

import re
from collections.abc import Iterable

from .. import Context

# What Unicode has without a shape (Default_Ignorable_Code_Point), as in a class of a pattern.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_WIDE = ord("\N{FULLWIDTH LATIN SMALL LETTER A}") - ord("a")
_NAME = f"[{_UNSEEN}]*".join(f"[{letter}{chr(ord(letter) + _WIDE)}]" for letter in "memory")
_TAG = re.compile(
    rf"[<\ufe64\uff1c](?=[\s/\uff0f{_UNSEEN}]*{_NAME}[\s{_UNSEEN}]*[:\ufe55\uff1a])", re.IGNORECASE
)
_ITEM = re.compile(rf"(?<=[\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029])(?=[{_UNSEEN}]*- )")


def injected(context: Context) -> str:
    """The summaries of sessions and the memories, each kind in a block; a kind without any in none.

    As the platform's runtime has it, byte for byte, but for stored text that
    looks like a part of the blocks, also in wide letters or with characters in
    it that nobody sees: its tags begin with `&lt;`, and a line in it that begins
    as an item does is indented, so that it is a part of its own item.
    """
    memories = (f"[{line.type}] {line.title}: {line.content}" for line in context.observations)
    return _block("memory:sessions", context.summaries) + _block("memory:context", memories)


def _block(tag: str, items: Iterable[str]) -> str:
    lines = "".join(f"- {_inside(item)}\n" for item in items)
    return f"<{tag}>\n{lines}</{tag}>\n" if lines else ""


def _inside(text: str) -> str:
    return _ITEM.sub("  ", _TAG.sub("&lt;", text))
