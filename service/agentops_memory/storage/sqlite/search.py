"""SQL for recall: FTS5 and its BM25, and the newest where words find too little."""

from collections.abc import Collection, Sequence

from ...domain.model import Filter, Hit, MemoryId, Method
from ...domain.query import Piece, Query, Term
from .filters import Clauses, clauses, parameters
from .memories import Memories
from .table import Table

KEYED_RANK = -1000.0
SENTENCE_DEPTH = 10  # memories that one of several sentences contributes at most
OTHER_SENTENCES = 0.4  # the weight of all sentences but a memory's best

TITLE_WEIGHT, CONTENT_WEIGHT = 2.0, 1.0

FEW = 500  # memories in sight up to which listing them first costs less


class Search(Table):
    """Recall in one transaction."""

    def keyed(self, path: str, seen: Filter, limit: int) -> list[Hit]:
        where = clauses(seen, memory="m")
        # The index of keys is read alone; few memories have one, and fewer this one.
        rows = self._execute(
            f"""SELECT m.id
                  FROM spaces s
                  JOIN memories m INDEXED BY memories_at_key ON m.space_id = s.id
                 WHERE {where.on_spaces} AND m.key IS NOT NULL AND m.deleted_at IS NULL
                       AND instr(m.key, :path) > 0 {where.on_memories}
              ORDER BY m.created_at DESC, m.id DESC
                 LIMIT :limit""",
            path=path,
            limit=limit,
            **parameters(seen),
        )
        found = Memories(self._connection).loaded(id_ for (id_,) in rows)
        return [Hit(memory=memory, rank=KEYED_RANK, method=Method.TOPIC_KEY) for memory in found]

    def every(self, query: Query, seen: Filter, limit: int) -> list[Hit]:
        return self._matching([_all_of(query.every)], seen, limit)

    def best(self, query: Query, seen: Filter, limit: int) -> list[Hit]:
        return self._matching([_any_of(sentence) for sentence in query.sentences], seen, limit)

    def backfill(self, seen: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        memories = Memories(self._connection).newest(seen, limit + len(but))
        found = [memory for memory in memories if memory.id not in but][:limit]
        return [Hit(memory=memory, rank=0.0, method=Method.RECENCY) for memory in found]

    def _matching(self, matches: Sequence[str], seen: Filter, limit: int) -> list[Hit]:
        depth = limit if len(matches) == 1 else max(limit, SENTENCE_DEPTH)
        where = clauses(seen, memory="m")
        sight = _LISTED if self._are_few(seen, where) else _looked_up(where)
        sentences = " UNION ALL ".join(_sentence(at, sight) for at in range(len(matches)))
        rows = self._execute(
            f"""  WITH in_sight AS MATERIALIZED
                       (SELECT m.id
                          FROM memories m INDEXED BY memories_by_time
                         WHERE m.deleted_at IS NULL AND m.space_id IN {where.spaces}
                               {where.on_memories}),
                       scored AS ({sentences})
                SELECT id, min(score) + {OTHER_SENTENCES} * (sum(score) - min(score)) AS score
                  FROM scored
              GROUP BY id
              ORDER BY score, id
                 LIMIT :limit""",
            limit=limit,
            depth=depth,
            **{f"match_{at}": match for at, match in enumerate(matches)},
            **parameters(seen),
        )
        ranks = dict(rows.fetchall())
        found = Memories(self._connection).loaded(ranks)
        return [
            Hit(memory=memory, rank=ranks[memory.id], method=Method.FULL_TEXT) for memory in found
        ]

    def _are_few(self, seen: Filter, where: Clauses) -> bool:
        """Whether the spaces in sight hold so few memories that they are listed first."""
        row = self._execute(
            f"""SELECT 1
                  FROM memories INDEXED BY memories_by_time
                 WHERE deleted_at IS NULL AND space_id IN {where.spaces}
                 LIMIT 1 OFFSET {FEW}""",
            **parameters(seen),
        ).fetchone()
        return row is None


def _sentence(at: int, sight: str) -> str:
    # CROSS JOIN: the full-text index leads. Led by memories, every row would ask it anew.
    return f"""
        SELECT * FROM (SELECT memories_fts.rowid AS id,
                              bm25(memories_fts, {TITLE_WEIGHT}, {CONTENT_WEIGHT}) AS score
                         FROM memories_fts {sight}
                        WHERE memories_fts MATCH :match_{at}
                     ORDER BY score, memories_fts.rowid
                        LIMIT :depth)"""


_LISTED = "CROSS JOIN in_sight ON in_sight.id = memories_fts.rowid"


def _looked_up(where: Clauses) -> str:
    # The narrow index answers for the space; the wide row is read for what is in sight alone.
    return f"""CROSS JOIN memories m INDEXED BY memories_in_space
                       ON m.id = memories_fts.rowid AND m.deleted_at IS NULL
                      AND m.space_id IN {where.spaces} {where.on_memories}"""


def _all_of(pieces: Sequence[Piece]) -> str:
    return " AND ".join(f"({_piece(piece)})" for piece in pieces)


def _piece(piece: Piece) -> str:
    parts = " AND ".join(map(_term, piece.parts))
    joined = _any_of(piece.joined)
    return f"({parts}) OR {joined}" if parts and joined else parts or joined


def _any_of(terms: Sequence[Term]) -> str:
    return " OR ".join(map(_term, terms))


def _term(term: Term) -> str:
    """A term as FTS5 reads it: quoted, so that none of it is syntax."""
    return f'"{term.text}" *' if term.starts else f'"{term.text}"'
