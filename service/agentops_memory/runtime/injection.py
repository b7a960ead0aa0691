"""What the service remembers, as the text that goes into a prompt."""

import re
from collections.abc import Iterable

from ..client import Context

_TAG = re.compile(r"<(?=[\s/]*memory\s*:)", re.IGNORECASE)
_ITEM = re.compile("(?<=[\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029])- ")


def injected(context: Context) -> str:
    """The summaries of sessions and the memories, each kind in a block; a kind without any in none.

    As the platform's runtime has it, byte for byte, but for stored text that
    looks like a part of the blocks: its tags begin with `&lt;`, and a line in it
    that begins as an item does is indented, so that it is a part of its own item.
    """
    memories = (f"[{line.type}] {line.title}: {line.content}" for line in context.observations)
    return _block("memory:sessions", context.summaries) + _block("memory:context", memories)


def _block(tag: str, items: Iterable[str]) -> str:
    lines = "".join(f"- {_inside(item)}\n" for item in items)
    return f"<{tag}>\n{lines}</{tag}>\n" if lines else ""


def _inside(text: str) -> str:
    return _ITEM.sub("  - ", _TAG.sub("&lt;", text))
