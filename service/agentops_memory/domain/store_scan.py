"""Looking for secrets in what stores hold, and taking them out: in texts, not in paths."""

from collections.abc import Iterable
from dataclasses import replace

from .model import Memory, Space, StoreId, Text
from .ports import Transaction
from .redaction import Rules
from .screen import Screen
from .store_model import Metadata, Store
from .store_rules import (
    MAX_CONTENT,
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_PAIR_KEY,
    MAX_PAIR_VALUE,
    sha256_of,
    size_of,
)
from .text import content_hash


def screened_entry(
    memory: Memory, revisions: Iterable[Text], rules: Rules
) -> tuple[Screen, Screen]:
    """What would be taken out of an entry and its versions, and what its path holds."""
    screen, names = Screen(rules), Screen(rules)
    names.text(memory.text.title, len(memory.text.title))
    _without(screen, memory.text)
    _pairs(screen, memory.extras)
    for text in revisions:
        _without(screen, text)
    return screen, names


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


def redact_entry(tx: Transaction, store: StoreId, uid: str, rules: Rules) -> int:
    """Take the secrets out of an entry and its versions; how many of those had any.

    Sizes and hashes are those of what is left.
    """
    memory, changed = tx.memories.in_space(Space.of_store(store), uid), 0
    assert memory is not None  # this transaction has just seen it
    for revision in tx.revisions.newest(memory)[1:]:
        clean = revision.text and _without(Screen(rules), revision.text)
        if clean is not None and clean != revision.text:
            tx.revisions.rewrite(memory.id, revision.number, clean)
            _measure(tx, memory, revision.number, clean)
            changed += 1
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
    return changed


def _measure(tx: Transaction, memory: Memory, number: int, text: Text) -> None:
    tx.versions.measure(memory.id, number, size_of(text.content), sha256_of(text.content))


def _without(screen: Screen, text: Text) -> Text:
    return replace(text, content=screen.text_of_bytes(text.content, MAX_CONTENT))


def _pairs(screen: Screen, pairs: Metadata) -> Metadata:
    return {
        screen.text(key, MAX_PAIR_KEY): screen.text(value, MAX_PAIR_VALUE)
        for key, value in pairs.items()
    }
