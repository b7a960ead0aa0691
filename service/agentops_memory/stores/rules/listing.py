"""Listing a store by path, with folders for what lies deeper."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...engine.engine import Transaction
from ...memory.model.space import StoreId
from ...memory.model.stores import Entry, Slice
from ...memory.sql.stores import EntryTable
from .rules import known_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A page of a listing by path: what lies below a prefix, after an item.

    The prefix is empty or ends with a slash. A shallow listing shows folders, which end
    with a slash, for what lies deeper.
    """

    prefix: str = ""
    is_shallow: bool = False
    after: str | None = None
    limit: int
    with_content: bool = False


def tree(tx: Transaction, store: StoreId, branch: Branch) -> Slice[Entry | str]:
    known_store(tx, store)
    first = branch.prefix if branch.after is None else _next(branch.after)
    items: list[Entry | str] = []
    while (wanted := branch.limit + 1 - len(items)) > 0:
        entries = tx[EntryTable].from_path(store, first, branch.prefix, wanted)
        some = list(_until_a_folder(entries, branch))
        items += some
        if not some or (len(some) < wanted and isinstance(some[-1], Entry)):
            break
        first = _next(some[-1])
    shown = items[: branch.limit]
    if branch.with_content:
        shown = [
            it if isinstance(it, str) else tx[EntryTable].get(store, it.id) or it for it in shown
        ]
    return Slice(tuple(shown), len(items) > branch.limit)


def _until_a_folder(entries: Iterable[Entry], branch: Branch) -> Iterator[Entry | str]:
    """The entries up to the first that a folder stands for, then this folder."""
    for entry in entries:
        segment, slash, _ = entry.path.removeprefix(branch.prefix).partition("/")
        if branch.is_shallow and slash:
            yield branch.prefix + segment + slash
            return
        yield entry


def _next(item: Entry | str) -> str:
    """The lowest path after an item, and after everything in it if it is a folder."""
    path = item if isinstance(item, str) else item.path
    return path[:-1] + chr(ord("/") + 1) if path.endswith("/") else path + "\x01"
