"""Looking for secrets in what stores hold, and taking them out: in texts, not in paths."""

from collections.abc import Collection
from dataclasses import replace

from ..memories.redactor import Redactor
from ..model.memory import Memory, Text
from ..model.space import StoreId
from ..model.stores import EntryId, Metadata, Store
from ..ports.engine import Transaction
from ..secrets.redaction import Rules
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


def screened_entry(memory: Memory, rules: Rules) -> tuple[Redactor, Redactor]:
    """What would be taken out of an entry as it is now, and what its path holds."""
    redactor, names = Redactor(rules), Redactor(rules)
    names.text(memory.text.title, len(memory.text.title))
    _without(redactor, memory.text)
    _pairs(redactor, memory.extras)
    return redactor, names


def screened_past(text: Text, rules: Rules) -> Redactor:
    """What would be taken out of an earlier version."""
    redactor = Redactor(rules)
    _without(redactor, text)
    return redactor


def screened_store(store: Store, rules: Rules) -> tuple[Redactor, Store]:
    """What would be taken out of what a store says of itself, and the store without it."""
    redactor = Redactor(rules)
    clean = replace(
        store,
        name=redactor.text(store.name, MAX_NAME),
        description=redactor.text(store.description, MAX_DESCRIPTION),
        metadata=_pairs(redactor, store.metadata),
    )
    return redactor, clean


def redact_entry(tx: Transaction, store: StoreId, entry: EntryId, rules: Rules) -> None:
    """Take the secrets out of an entry as it is now. Size and hash are those of what is left."""
    memory = _memory(tx, store, entry)
    redactor = Redactor(rules)
    text = _without(redactor, memory.text)
    if text != memory.text:
        _measure(tx, memory, memory.revision, text)
        tx.stores.grow(store, 0, size_of(text.content) - size_of(memory.text.content))
    tx.memories.replace(
        replace(
            memory,
            text=text,
            extras=_pairs(redactor, memory.extras),
            content_hash=content_hash(text.content),
        )
    )
    tx.memories.must_scrub(memory.id)


def redact_past(
    tx: Transaction, store: StoreId, entry: EntryId, numbers: Collection[int], rules: Rules
) -> int:
    """The same for earlier versions; how many had any."""
    memory, changed = _memory(tx, store, entry), 0
    for past in tx.versions.past((memory.id, min(numbers) - 1), max(numbers)):
        if past.memory != memory.id or past.number > max(numbers):
            break
        clean = _without(Redactor(rules), past.text)
        if clean != past.text:
            tx.revisions.rewrite(memory.id, past.number, clean)
            _measure(tx, memory, past.number, clean)
            changed += 1
    tx.memories.must_scrub(memory.id)
    return changed


def _memory(tx: Transaction, store: StoreId, entry: EntryId) -> Memory:
    memory = tx.memories.in_store(store, entry)
    assert memory is not None  # this transaction has just seen it
    return memory


def _measure(tx: Transaction, memory: Memory, number: int, text: Text) -> None:
    tx.versions.measure(memory.id, number, size_of(text.content), sha256_of(text.content))


def _without(redactor: Redactor, text: Text) -> Text:
    return replace(text, content=redactor.text_of_bytes(text.content, MAX_CONTENT))


def _pairs(redactor: Redactor, pairs: Metadata) -> Metadata:
    return {
        redactor.text(key, MAX_PAIR_KEY): redactor.text(value, MAX_PAIR_VALUE)
        for key, value in pairs.items()
    }
