"""What the full-text index holds of a memory, column by column: prepared text. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from .features import Feature, Features
from .normalization import borrowed, borrows, end_of, indexed


class Columns(NamedTuple):
    """The columns of an entry, as they are tokenized."""

    title: str
    content: str
    context: str
    tags: str


def columns(
    title: str, content: str, tags: Iterable[str], before: Iterable[str], features: Features
) -> Columns:
    """The entry of a memory, with the contents of those before it in the session, oldest first.

    They are read only if it borrows from them.
    """
    return Columns(
        title=indexed(title, features),
        content=indexed(content, features),
        context=context(before, features) if borrows(content, features) else "",
        tags=tags_column(tags, features),
    )


def context(before: Iterable[str], features: Features) -> str:
    """What a memory borrows from those before it."""
    return indexed(borrowed(filter(None, before)), features)


def tags_column(tags: Iterable[str], features: Features) -> str:
    return indexed("\n".join(tags), features) if Feature.TAGS in features else ""


def content_with_end(content: str, features: Features) -> tuple[str, str | None]:
    """A content as it is tokenized, and its end as the next memories of the session borrow it.

    In ASCII no word reaches over white space: so the end is prepared once, for both. Beyond it the
    end is None, as what the others prepare of it together may be something else.
    """
    end = end_of(content)
    if not end.isascii():
        return indexed(content, features), None
    prepared, stripped = indexed(end, features), content.rstrip()
    if not (content.isascii() and stripped.endswith(end)):
        return indexed(content, features), prepared
    head = stripped[: len(stripped) - len(end)]
    start = indexed(head, features) if head else ""
    return f"{start}{prepared}{content[len(stripped) :]}", prepared
