"""Looking for secrets in what stores hold, and taking them out: in texts, not in paths."""

from collections.abc import Collection
from dataclasses import replace

from ..memories.redactor import Screen
from ..model import Memory, StoreId, Text
from ..ports.engine import Transaction
from ..secrets.redaction import Rules
from ..stores.model import EntryId, Metadata, Store
from ..stores.rules import (
    MAX_CONTENT,
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_PAIR_KEY,
    MAX_PAIR_VALUE,
    sha256_of,
    size_of,
)
from ..text.normalization import content_hash


def screened_entry(memory: Memory, rules: Rules) -> tuple[Screen, Screen]:
    """What would be taken out of an entry as it is now, and what its path holds."""
    screen, names = Screen(rules), Screen(rules)
    names.text(memory.text.title, len(memory.text.title))
    _without(screen, memory.text)
    _pairs(screen, memory.extras)
    return screen, names


def screened_past(text: Text, rules: Rules) -> Screen:
    """What would be taken out of an earlier version."""
    screen = Screen(rules)
    _without(screen, text)
    return screen


def screened_store(store: Store, rules: Rules) -> tuple[Screen, Store]:
    """What would be taken out of what a store says of itself, and the store without it."""
    screen = Screen(rules)
    clean = replace(
        store,
        name=screen.text(store.name, MAX_NAME),
        description=screen.text(store.description, MAX_DESCRIPTION),
        metadata=_pairs(screen, store.metadata),
    )
    return screen, clean


def redact_entry(tx: Transaction, store: StoreId, entry: EntryId, rules: Rules) -> None:
    """Take the secrets out of an entry as it is now. Size and hash are those of what is left."""
    memory = _memory(tx, store, entry)
    screen = Screen(rules)
    text = _without(screen, memory.text)
    if text != memory.text:
        _measure(tx, memory, memory.revision, text)
        tx.stores.grow(store, 0, size_of(text.content) - size_of(memory.text.content))
    tx.memories.replace(
        replace(
            memory,
            text=text,
            extras=_pairs(screen, memory.extras),
            content_hash=content_hash(text.content),
        )
    )
    tx.index.must_purge(memory.id)


def redact_past(
    tx: Transaction, store: StoreId, entry: EntryId, numbers: Collection[int], rules: Rules
) -> int:
    """The same for earlier versions; how many had any."""
    memory, changed = _memory(tx, store, entry), 0
    for past in tx.versions.past((memory.id, min(numbers) - 1), max(numbers)):
        if past.memory != memory.id or past.number > max(numbers):
            break
        clean = _without(Screen(rules), past.text)
        if clean != past.text:
            tx.revisions.rewrite(memory.id, past.number, clean)
            _measure(tx, memory, past.number, clean)
            changed += 1
    tx.index.must_purge(memory.id)
    return changed


def _memory(tx: Transaction, store: StoreId, entry: EntryId) -> Memory:
    memory = tx.memories.in_store(store, entry)
    assert memory is not None  # this transaction has just seen it
    return memory


def _measure(tx: Transaction, memory: Memory, number: int, text: Text) -> None:
    tx.versions.measure(memory.id, number, size_of(text.content), sha256_of(text.content))


def _without(screen: Screen, text: Text) -> Text:
    return replace(text, content=screen.text_of_bytes(text.content, MAX_CONTENT))


def _pairs(screen: Screen, pairs: Metadata) -> Metadata:
    return {
        screen.text(key, MAX_PAIR_KEY): screen.text(value, MAX_PAIR_VALUE)
        for key, value in pairs.items()
    }
