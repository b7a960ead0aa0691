"""Look-alikes: the memories that say nearly what one says that was just saved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..engine.engine import Transaction
from ..recall.text.features import Feature, Features
from ..recall.text.query import Term, understood
from .model.memory import Lookalike, Memory, MemoryId
from .model.search import Filter
from .sql.memories import MemoryTable
from .sql.rows import micros
from .sql.table import Table


@dataclass(eq=False)
class LookalikeTable(Table):
    """Pairs of memories that looked alike when the later of them was saved."""

    _now: datetime

    def of(self, later: MemoryId) -> list[tuple[MemoryId, float]]:
        """The memories that one looked like when it was saved, with their scores, best first."""
        return self._execute(
            """SELECT earlier_id, score
                 FROM lookalikes
                WHERE later_id = :later
             ORDER BY score DESC, earlier_id""",
            later=later,
        ).fetchall()

    def put(self, later: MemoryId, scores: Mapping[MemoryId, float]) -> None:
        """Replace the pairs of a memory that was just saved; those that are gone are left out."""
        self._execute("DELETE FROM lookalikes WHERE later_id = :later", later=later)
        rows = [
            {"later": later, "earlier": earlier, "score": score, "now": micros(self._now)}
            for earlier, score in scores.items()
        ]
        for statement in (
            "DELETE FROM lookalikes WHERE later_id = :earlier AND earlier_id = :later",
            """INSERT INTO lookalikes (later_id, earlier_id, score, at)
               SELECT later.id, earlier.id, :score, :now
                 FROM memories later
                 JOIN memories earlier ON earlier.id = :earlier
                WHERE later.id = :later""",
        ):
            self._connection.executemany(statement, rows)


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
