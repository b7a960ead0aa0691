"""What a question of OpenWOP is made of: its path in the vendor scope, and how it is answered."""

import re
from collections.abc import Mapping
from datetime import timedelta

from ..contract.call import Call, Query, given, once, present
from ..contract.errors import Invalid
from ..contract.reading import Headers, Reader, T, json_object, read_as

HOST = ("v1", "host", "agentops-memory")
LONGEST = 256  # code points of a ref, or of an entry's id
AT_LENGTH = timedelta(minutes=2)  # for what reads a whole ref, or looks through all of them

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether a text can be a ref, or an id, of a request: others are sent as another, or as none.

    The service has the other rules of what is malformed.
    """
    return 0 < len(text) <= LONGEST and "\0" not in text and not _SURROGATE.search(text)


def asking(name: str, *path: str, query: Query | None = None, read: Reader[T]) -> Call[T]:
    """What reads."""
    return Call(
        operation=f"openwop_{name}", method="GET", path=(*HOST, *path), query=query or {}, read=read
    )


def telling(
    name: str,
    *path: str,
    read: Reader[T],
    method: str = "POST",
    query: Query | None = None,
    body: Mapping[str, object] | None = None,
    key: str | None = None,
    within: timedelta | None = None,
) -> Call[T]:
    """What writes, once, however often it is sent; with the fields of its body that are there."""
    return Call(
        operation=f"openwop_{name}", method=method, path=(*HOST, *path), query=query or {},
        body=None if body is None else present(body), headers=once(key), within=within, read=read,
    )  # fmt: skip


def parameters(**named: object) -> Query:
    """The parameters that are there. Invalid for one that would be sent as another text."""
    query = given(**named)
    if faults := [name for name, texts in query.items() if _SURROGATE.search("".join(texts))]:
        raise Invalid(f"{', '.join(faults)}: a lone surrogate is no text.")
    return query


def noun(kind: type[T]) -> Reader[T]:
    """The reader of an answer that is the noun."""
    return lambda body, _: read_as(kind, json_object(body))


def member(name: str, kind: type[T]) -> Reader[T]:
    """The reader of one member of an answer."""
    return lambda body, _: read_as(kind, json_object(body).get(name))


def members(name: str, kind: type[T]) -> Reader[tuple[T, ...]]:
    """The reader of a list in an answer."""

    def read(body: bytes, _: Headers) -> tuple[T, ...]:
        found: tuple[T, ...] = read_as(tuple[kind, ...], json_object(body).get(name))  # type: ignore[valid-type]
        return found

    return read
