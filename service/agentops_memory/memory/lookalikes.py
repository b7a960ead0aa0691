"""Look-alikes: the memories that say nearly what one says that was just saved."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from ..engine.engine import Transaction
from ..recall.text.features import Feature, Features
from ..recall.text.query import Term, understood
from .model.memory import Lookalike, Memory, MemoryId
from .model.search import Filter
from .sql.lookalikes import LookalikeTable
from .sql.memories import MemoryTable

SOUGHT = 16  # the longest words of a memory: long words are rare ones
CANDIDATES = 20  # the best by BM25, of which the most similar are told
LEAST = 0.35  # of a look-alike's score
MAX_SIMILAR = 10  # look-alikes of one memory


def lookalikes(
    tx: Transaction, memory: MemoryId, most: int, features: Features, timeout: timedelta
) -> tuple[Lookalike, ...]:
    """The memories most like this one, best first, ties by id; TimedOut."""
    saved = tx[MemoryTable].get(memory)
    if saved is None or not saved.is_live(tx.now):
        return ()
    with tx.search.within(timeout):
        candidates = _candidates(tx, saved, features)
        return tuple(_scored(tx, saved, candidates)[:most])


def keep_lookalikes(tx: Transaction, memory: MemoryId, found: Iterable[Lookalike]) -> None:
    tx[LookalikeTable].put(memory, {it.memory.id: it.score for it in found})


def kept_lookalikes(tx: Transaction, memory: MemoryId, most: int) -> tuple[Lookalike, ...]:
    """Those that were found when the memory was saved, unless they are gone."""
    kept = (
        (tx[MemoryTable].get(id_), score) for id_, score in tx[LookalikeTable].of(memory)[:most]
    )
    return tuple(Lookalike(memory=it, score=score) for it, score in kept if it is not None)


def _candidates(tx: Transaction, saved: Memory, features: Features) -> list[Memory]:
    """What a context of the project sees and has some of the words, but for the memory itself."""
    terms = _longest(understood(_said(saved), features - {Feature.SENTENCES}).terms)
    filter_ = Filter(project=saved.space.project, global_too=True, is_current=True)
    found = tx.search.similar(terms, filter_, CANDIDATES + 1) if terms else []
    return [it for it in found if it.id != saved.id][:CANDIDATES]


def _longest(terms: Iterable[Term]) -> list[Term]:
    return sorted(terms, key=lambda it: (-len(it.text), it))[:SOUGHT]


def _scored(tx: Transaction, saved: Memory, candidates: Sequence[Memory]) -> list[Lookalike]:
    scores = tx.search.similarities(_said(saved), list(map(_said, candidates)))
    scored = zip(candidates, scores, strict=True)
    alike = [Lookalike(memory=it, score=score) for it, score in scored if score >= LEAST]
    return sorted(alike, key=lambda it: (-it.score, it.memory.id))


def _said(memory: Memory) -> str:
    return f"{memory.text.title}\n{memory.text.content}"
