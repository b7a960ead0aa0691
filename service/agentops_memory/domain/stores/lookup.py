"""What a caller may know of stores: it is found, or refused with NotFound or Denied."""

from ..errors import Archived, NotFound
from ..model.space import StoreId
from ..model.stores import Entry, EntryId, Store, Version, VersionId
from ..ports.engine import Transaction

NO_STORE = "No such memory store."
NO_ENTRY = "No such memory in this store."
NO_VERSION = "No such version in this store."


def known_store(tx: Transaction, store: StoreId) -> Store:
    """The store, archived or not. The caller may know of stores."""
    tx.caller.require_stores()
    found = tx.stores.get(store)
    if found is None:
        raise NotFound(NO_STORE)
    return found


def open_store(tx: Transaction, store: StoreId) -> Store:
    """The store, if it can be written to."""
    found = known_store(tx, store)
    if found.archived_at is not None:
        raise Archived("The memory store is archived; what is in it stays as it is.")
    return found


def known_entry(tx: Transaction, store: StoreId, entry: EntryId) -> Entry:
    """The live entry, with its content."""
    known_store(tx, store)
    found = tx.entries.get(store, entry)
    if found is None:
        raise NotFound(NO_ENTRY)
    return found


def known_version(tx: Transaction, store: StoreId, version: VersionId) -> Version:
    """The version, with its content if it has any left; also of an entry that was deleted."""
    known_store(tx, store)
    found = tx.versions.get(store, version)
    if found is None:
        raise NotFound(NO_VERSION)
    return found
