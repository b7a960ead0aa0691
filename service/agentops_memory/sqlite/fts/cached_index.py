"""The index in memory of one database: how it is loaded, and what one reader finds in it."""

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from operator import itemgetter

from ...engine.shared.stems import Stems
from ...errors import Damaged
from ...memory.model.bm25 import Totals
from ...memory.model.liveness import indexed, undeleted
from ...memory.model.memory import MemoryId, end_of
from ...memory.model.ranking import weights_of
from ...memory.model.space import GLOBAL_AREA
from ...recall.inverted_index.area import Draft, Row
from ...recall.inverted_index.cache import READ_BYTES, DatabaseIndex, IndexCache
from ...recall.inverted_index.entry import Entry
from ...recall.inverted_index.group import Group, Weights
from ...recall.search.rows import area_of
from ...recall.search.visibility import VisibleRows
from ...recall.text.columns import Columns
from ...recall.text.features import ALL, Features
from ...recall.text.spelling import is_compared
from ..base.connection import in_snapshot, known_stems, token_of
from ..base.dialect import SqliteTable
from .documents import Documents, entries_of
from .partitions import Partitions, numbers, table

LONGEST = timedelta(seconds=30)  # that reading a group into memory takes
NEVER = 1 << 62  # microseconds
TOTALS = 1  # the row of FTS5's data that counts rows, and words by column

log = logging.getLogger(__name__)


def index_in_memory(cache: IndexCache, features: Features) -> DatabaseIndex:
    """The index in memory of one database, with nothing in it; of all features, or of none."""
    stems = Stems()  # used under the lock of the index

    def entry_of(said: Columns) -> Entry:
        return Entry.of_fields(stems.of_texts(said))

    cache = cache if features == ALL else IndexCache(0)
    return DatabaseIndex(cache, partial(terms_of, stems), weights_of(features), entry_of)


def terms_of(stems: Stems, of: Iterable[str]) -> dict[str, str]:
    """The terms that stand for stems where typos are looked for; empty for none."""
    forms = stems.forms_of(filter(None, of))
    return {stem: form if is_compared(form) else "" for stem, form in forms.items()}


class CachedIndex(SqliteTable):
    """What is in memory for one transaction."""

    def __init__(self, connection: sqlite3.Connection, index: DatabaseIndex | None) -> None:
        super().__init__(connection)
        self._index = None if index is None or index.holds_nothing else index

    @contextmanager
    def of(self, visible: VisibleRows) -> Iterator[tuple[Group, list[Weights]] | None]:
        """The areas of a filter, for this reader alone; None where memory cannot tell."""
        place, index = _place(visible), self._index
        if place is None or index is None:
            yield None
            return
        number, areas = place
        with index.lock:
            group = index.group(number) if index.is_at(self._token) else None
            if group is None:
                index.queue.want(number)
                yield None
            else:
                yield group, group.weights_of(areas)
        index.grew(READ_BYTES)

    @property
    def _token(self) -> int:
        return token_of(self._connection)


def load_wanted(database: sqlite3.Connection, index: DatabaseIndex) -> None:
    """Read what prompts ask for into memory, if there is anything; when nobody waits for it."""
    with index.queue.next() as number:
        if number is None:
            return
        try:
            in_snapshot(database, LONGEST, partial(_load, database, index, number))
        except (Damaged, ValueError, OverflowError, sqlite3.Error) as error:
            log.debug("A project is not held in memory: %s", error)
            index.queue.refuse(number)
        except BaseException:
            index.queue.refuse(number)
            raise


def _load(database: sqlite3.Connection, index: DatabaseIndex, number: int) -> None:
    token, stored, wanted = token_of(database), _Stored(database), index.plan(number)
    areas = stored.areas(wanted.number) if wanted.areas is None else wanted.areas
    globals_ = {GLOBAL_AREA} if wanted.globals_too else set()
    drafts = _drafts(database, index, stored, sorted({*areas, *globals_}))
    is_same = index.install(token, wanted, drafts, stored.totals(wanted.number))
    if stored.computed:
        index.computed.append((token, stored.computed))
    if not is_same:
        raise Damaged("The index does not hold what the memories say.")


def _drafts(
    database: sqlite3.Connection, index: DatabaseIndex, stored: "_Stored", areas: Iterable[int]
) -> Iterator[Draft]:
    for area in areas:
        draft = Draft(area, stored.rows(area), index.vocabulary)
        # Looked up here: nobody waits for the lock of the index meanwhile.
        new = [it for it in draft.postings if it not in index.vocabulary.numbers]
        draft.terms = terms_of(known_stems(database), new)
        yield draft


class _Stored(SqliteTable):
    """What is loaded of a database, in one snapshot."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.computed: dict[MemoryId, Entry] = {}  # of memories whose stems are not stored
        if not self._number("SELECT rules = own_rules() FROM index_rules"):
            raise Damaged("The index was made by other rules.")

    def areas(self, partition: int) -> set[int]:
        return set(self._scalars("SELECT area FROM spaces WHERE partition = :it", it=partition))

    def rows(self, area: int) -> Iterator[Row]:
        """The memories of an area by id; Damaged where it cannot be told when one expires."""
        found = self._execute(
            f"""SELECT m.id, m.space_id, m.session_id, m.created_at, l.expires_at, l.pinned_at,
                       t.stems
                  FROM spaces s
                 CROSS JOIN memories m {self._sql.hint("memories_in_space")} ON m.space_id = s.id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
                  LEFT JOIN memory_stems t ON t.memory_id = m.id
                 WHERE s.area = :area AND {indexed("m")}""",
            area=area,
        ).fetchall()
        found.sort(key=itemgetter(0))
        superseded: dict[MemoryId, list[int]] = {}
        for older, end in self._superseded(area):
            superseded.setdefault(older, []).append(NEVER if end is None else end)
        missing = [row[0] for row in found if row[-1] is None]
        entries = self._entries(missing) if missing else {}
        self.computed |= entries
        for id_, space, session, created_at, expires_at, pinned_at, stems in found:
            end_of(id_, expires_at)
            entry = entries[id_] if stems is None else Entry.loaded(stems)
            by = tuple(superseded.get(id_, ()))
            yield Row(id_, space, session, created_at, expires_at, pinned_at, entry, by)

    def _superseded(self, area: int) -> list[tuple[MemoryId, int | None]]:
        """Memories of an area that others supersede, and when each of those expires."""
        return self._execute(
            f"""SELECT x.older_id, l.expires_at
                  FROM supersessions x
                  JOIN memories newer ON newer.id = x.newer_id
                  JOIN memories older ON older.id = x.older_id
                  JOIN spaces s ON s.id = older.space_id
                  LEFT JOIN lifecycles l ON l.memory_id = newer.id
                 WHERE s.area = :area AND {undeleted("newer")}""",
            area=area,
        ).fetchall()

    def totals(self, partition: int) -> Totals:
        """How many rows the index holds in a partition, and how many words."""
        name = table(partition)
        row = self._execute(f"SELECT block FROM {name}_data WHERE id = {TOTALS}").fetchone()
        count, *words = numbers(row[0]) if row else (0,)
        return Totals(count, sum(words))

    def _entries(self, memories: Sequence[MemoryId]) -> dict[MemoryId, Entry]:
        """The entries of memories whose stems are not stored, as of an older format."""
        stems = known_stems(self._connection)
        documents = Documents(self._connection, Partitions(self._connection, is_alone=False))
        return entries_of(stems, documents.of(memories))


def _place(visible: VisibleRows) -> tuple[int, list[int]] | None:
    """The group and the areas of a filter; None where they are several groups."""
    if len(visible.spans) != 1 or visible.is_alone:
        return None
    ((number, spans),) = visible.spans.items()
    areas = [area_of(first) for first, last in spans if area_of(first) == area_of(last)]
    return (number, areas) if len(areas) == len(spans) else None
