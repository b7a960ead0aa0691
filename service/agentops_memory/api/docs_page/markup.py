"""Markup that is built of elements: whatever else is put on a page is escaped."""

from html import escape

_EMPTY = frozenset({"meta", "wbr"})  # elements that hold nothing and have no end


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(element: str, /, *inside: str, **attributes: str) -> Markup:
    """An element. `class_` says what `class` does, and `aria_label` what `aria-label` does."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    end = "" if element in _EMPTY else f"</{element}>"
    return Markup(f"<{element}{said}>{joined(*inside)}{end}")


def joined(*parts: str, by: str = "") -> Markup:
    """The parts in a row; what is no markup is escaped."""
    return Markup(_escaped(by).join(map(_escaped, parts)))


def code(text: str) -> Markup:
    """Text as a machine reads it."""
    return tag("code", text)


def prose(text: str) -> Markup:
    """A sentence, in which backticks stand around code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is left over
        return joined(text)
    return joined(*(code(part) if at % 2 else part for at, part in enumerate(parts)))


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)
