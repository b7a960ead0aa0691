"""What the full-text index holds of a memory, column by column: prepared text. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from .features import Feature, Features
from .normalization import borrowed, borrows, indexed


class Columns(NamedTuple):
    """The columns of an entry, as they are tokenized."""

    title: str
    content: str
    context: str
    tags: str


class End:
    """The end of a memory's content, which the next ones in its session may borrow."""

    __slots__ = ("_prepared", "text")

    def __init__(self, content: str) -> None:
        self.text = borrowed([content]) if content else None
        self._prepared: str | None = None

    def prepared(self, features: Features) -> str:
        if self._prepared is None:
            self._prepared = indexed(self.text or "", features)
        return self._prepared


def columns(
    title: str, content: str, tags: Iterable[str], before: Iterable[End], features: Features
) -> Columns:
    """The entry of a memory, with the ends of those before it in the session, oldest first.

    They are read only if it borrows from them.
    """
    return Columns(
        title=indexed(title, features),
        content=indexed(content, features),
        context=context(before, features) if borrows(content, features) else "",
        tags=tags_column(tags, features),
    )


def context(before: Iterable[End], features: Features) -> str:
    """What a memory borrows from those before it."""
    ends = [it for it in before if it.text is not None]
    # Beyond ASCII, what is prepared may depend on the text before it.
    if all(it.text.isascii() for it in ends if it.text):
        return "\n".join(it.prepared(features) for it in ends)
    return indexed("\n".join(it.text or "" for it in ends), features)


def tags_column(tags: Iterable[str], features: Features) -> str:
    return indexed("\n".join(tags), features) if Feature.TAGS in features else ""


def content_with_end(content: str, features: Features) -> tuple[str, End]:
    """A content as it is tokenized, and its end.

    In ASCII no word reaches over white space: so the end is prepared once, for both.
    """
    end = End(content)
    text, stripped = end.text or "", content.rstrip()
    if not (content.isascii() and stripped.endswith(text)):
        return indexed(content, features), end
    head = stripped[: len(stripped) - len(text)]
    start = indexed(head, features) if head else ""
    return f"{start}{end.prepared(features)}{content[len(stripped) :]}", end
