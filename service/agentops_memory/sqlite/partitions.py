"""SQL for the partitions of the full-text index, and for their documents and stems."""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from ..engine.engine import noop
from ..errors import DamagedRow, RunAgain
from ..light import dataclass
from ..memory import space as spaces
from ..memory.memory import MemoryId, indexed
from ..memory.table import Known, Waiting
from ..recall.stems import TOKENIZER, Entry, Stems, entry_of
from ..recall.visibility import AREA, ID, PRIOR, Borrowing, Document, Groups, row_number
from .connection import Database, SqliteTable, drop_statements, is_readable
from .dialect import is_damage

OWN_COLUMNS = ("title", "content", "tags")  # a memory's own words, not those that it borrows

Row = tuple[int, str, str, str, str]
"""A document in a full-text table: the row's number and its columns."""


def table(number: int) -> str:
    return f"memories_fts_{number}"


def stored_of(number: int) -> list[str]:
    return [f"{table(number)}_{part}" for part in ("data", "idx", "docsize", "config")]


def text_of(number: int) -> str:
    return f"memory_text_{number}"


# How many segments of a level the writer's merges need, and how many make a change merge at once.
# FTS5's automatic merges are off: with them, some changes take twice as long. A change merges a
# whole level, which takes up to 50 ms, only if the writer has had no time to merge for long.
MERGES = {"automerge": 0, "usermerge": 2, "crisismerge": 16}
SEGMENTS = 6  # segments of a level from which the writer merges some
PAGES = 32  # pages of the index that one transaction merges: 2 to 4 ms
PAGES_OF_A_PURGE = 250  # the same for a purge


class Partitions(SqliteTable, Groups, Borrowing):
    """The partitions of one transaction; only a transaction of its own can create one.

    Their rows are documents of memories, whose stems are stored beside them.
    """

    def __init__(
        self, connection: Database, *, is_alone: bool = False, known: Known | None = None
    ) -> None:
        super().__init__(connection)
        self.is_alone = is_alone
        known = known or Known()
        self._by_area, self.segments = known.partitions, known.segments

    def all(self) -> list[int]:
        """Return the numbers of existing partitions; the first one always exists."""
        numbers = self._scalars("SELECT number FROM partitions ORDER BY number")
        return list(filter(spaces.is_partition, numbers))

    def of_projects(self) -> list[int]:
        """Return the numbers of the partitions with projects and global memories."""
        return [it for it in self.all() if spaces.group_of(it) is spaces.IndexGroup.PROJECTS]

    def make(self, number: int) -> None:
        """Create a partition, with the memories that belong in it, unless it exists."""
        if not self.is_made(number):
            self._make(number)

    def is_made(self, number: int) -> bool:
        return self._exists("SELECT 1 FROM partitions WHERE number = :number", number=number)

    def waiting(self, number: int) -> list[MemoryId]:
        """Return the memories that are not in the partition yet."""
        return self._scalars(
            f"""SELECT m.id
                  FROM index_rules
                 CROSS JOIN memories m ON m.id > indexed_to
                 CROSS JOIN spaces s ON s.id = m.space_id
                 WHERE ({_lies_in(number)}) AND {indexed("m")}
                       AND area << {AREA} | m.id NOT IN (SELECT id FROM {table(number)}_docsize)"""
        )

    def totals(self, number: int) -> list[int]:
        """Return the number of rows in a partition, and of words by column; [0] if unknown."""
        blocks = self._scalars(f"SELECT block FROM {table(number)}_data WHERE id = {TOTALS}")
        return [it for block in blocks for it in numbers(block)] or [0]

    def of_area(self, area: int, before_making: Callable[[], object] = noop) -> list[int]:
        """Return the partitions of an area, created if missing."""
        if area not in self._by_area:
            if area == spaces.GLOBAL_AREA:
                numbers = self.of_projects()
            elif area == spaces.UNINDEXED_AREA:
                numbers = []
            else:
                numbers = [self._of_one(area)]
                if not self.is_made(numbers[0]):
                    before_making()
                    self._require_new(area)
                    self.make(numbers[0])
            self._by_area[area] = numbers
        return self._by_area[area]

    def forget(self) -> None:
        """Forget the cached partitions of areas."""
        self._by_area.clear()

    def assign(self, area: int, number: int) -> None:
        self.forget()
        self._execute(
            "UPDATE spaces SET partition = :number WHERE area = :area", number=number, area=area
        )

    def mark_for_purge(self, numbers: Iterable[int]) -> None:
        """Mark partitions whose deleted words must also leave the storage."""
        self._connection.executemany(
            """INSERT INTO purges (partition)
               VALUES (:number)
                   ON CONFLICT DO UPDATE
                  SET notes = notes + 1""",
            [{"number": number} for number in numbers],
        )

    def marked_for_purge(self) -> list[tuple[int, int]]:
        """Return the marked partitions, each with its number of marks."""
        return self._execute(
            "SELECT partition, notes FROM purges JOIN partitions ON number = partition"
        ).fetchall()

    def purge(self, number: int, notes: int, begun: "Purge | None" = None) -> "Purge | None":
        """Remove deleted words from a partition's storage, a part at a time.

        Returns None at the end; the marks are then removed, unless more than `notes` were set.
        """
        begun = self._purged(number, begun)
        if begun is None:
            self._execute(
                "DELETE FROM purges WHERE partition = :number AND notes = :notes",
                number=number,
                notes=notes,
            )
        return begun

    def rebuild(self, number: int) -> None:
        name = table(number)
        self._execute(f"INSERT INTO {name} ({name}) VALUES ('rebuild')")

    def is_readable(self, number: int) -> bool:
        return all(is_readable(self._connection, name) for name in stored_of(number))

    def recreate(self, number: int) -> None:
        """Replace a damaged partition without reading its pages.

        Its pages hold its words until the file is vacuumed.
        """
        if not self.is_alone:
            raise RunAgain  # creating a table is long, so it must not share a commit
        self._execute("DELETE FROM partitions WHERE number = :number", number=number)
        self._execute("INSERT INTO remains (one) VALUES (1) ON CONFLICT DO NOTHING")
        for statement in drop_statements([table(number), text_of(number), *stored_of(number)]):
            self._execute(statement)
        self._make(number)

    def is_exact(self, number: int) -> bool:
        """Whether a partition matches the memories exactly; needs a write transaction."""
        name = table(number)
        try:
            self._execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)")
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return False
        return True

    def drift(self, number: int) -> int:
        """Return by how many rows a partition has more or fewer than its memories.

        Memories that wait to be indexed may be missing.
        """
        name = table(number)
        return self._number(
            f"""SELECT abs((SELECT count(*) FROM {name}_docsize)
                         - (SELECT count(*)
                              FROM {text_of(number)}
                             WHERE id >= {PRIOR}
                                   OR id & {ID} <= (SELECT indexed_to FROM index_rules)
                                   OR id IN (SELECT id FROM {name}_docsize)))"""
        )

    def drop_all(self) -> None:
        """Drop all partitions, including those that a damaged file does not list."""
        dropping = """SELECT 'DROP ' || CASE type WHEN 'view' THEN 'VIEW ' ELSE 'TABLE ' END || name
                        FROM sqlite_schema
                       WHERE sql LIKE 'CREATE VIRTUAL TABLE memories!_fts!_%' ESCAPE '!'
                             OR type = 'view' AND name GLOB 'memory_text_[0-9]*'"""
        for statement in self._scalars(dropping):
            self._execute(statement)
        self._execute("DELETE FROM partitions")

    def _purged(self, number: int, begun: "Purge | None") -> "Purge | None":
        if begun is not None:
            self.merge(number)
        # Repeat at once: a later save may move the result of a small merge back to its level.
        for merges in range(MERGES_OF_A_PURGE + 1):
            levels = self.levels(number)
            if begun is not None:
                if any(merging for merging, _ in levels[begun.level :]):
                    return begun
                if begun.is_last:
                    return None
            counts = [segments for _, segments in levels]
            if sum(counts) == sum(counts[-1:]) <= 1:
                return None  # a single segment on the last level has no deleted words
            if merges < MERGES_OF_A_PURGE:
                begun = self._begin_purge(number)
        self.rebuild(number)  # so small that FTS5 moves each result back and forth
        return None

    def levels(self, number: int) -> "list[Level]":
        ((record,),) = self._execute(f"SELECT block FROM {table(number)}_data WHERE id = 10")
        read = numbers(record[COOKIE:])
        count, _, _ = (next(read) for _ in range(3))
        levels = []
        for _ in range(count):
            merging, segments = next(read), next(read)
            for _ in range(3 * segments):  # id, first page and last page
                next(read)
            levels.append((merging, segments))
        return levels

    def _begin_purge(self, number: int) -> "Purge":
        """Merge some pages of all segments, or continue where all but one are being merged."""
        name, levels = table(number), self.levels(number)
        if sum(segments for _, segments in levels) == 1:  # FTS5 merges no segment alone
            self._execute(f"INSERT INTO {name} (rowid, title) VALUES ({NO_ROW}, 'x')")
            self._execute(
                f"INSERT INTO {name} ({name}, rowid, title) VALUES ('delete', {NO_ROW}, 'x')"
            )
            levels = self.levels(number)
        total, top = sum(segments for _, segments in levels), len(levels) - 1
        purge = Purge(level=len(levels), is_last=True)  # FTS5 moves all to a new level
        for level, (merging, segments) in enumerate(levels):
            if segments == total:
                purge = Purge(level=level, is_last=level >= top - 1)
            elif segments == merging == total - 1:
                purge = Purge(level=level, is_last=level == top - 1)
        self.merge(number, of_all=True)
        return purge

    def merge_some(self) -> bool:
        """Merge some pages of a level with many segments; return False if there is none."""
        for number, added in self.segments.items():
            if added >= SEGMENTS:
                # A damaged record, which a change reports.
                with suppress(ValueError, RuntimeError, StopIteration, TypeError):
                    if any(it >= SEGMENTS for _, it in self.levels(number)):
                        return self.merge(number)
                self.segments[number] = 0
        return False

    def merge(self, number: int, *, of_all: bool = False) -> bool:
        """Merge some pages of a level with two segments or more; return False if there is none.

        With `of_all`, merge all segments, which are moved to one level first.
        """
        name, before = table(number), self._connection.total_changes
        pages = -PAGES_OF_A_PURGE if of_all else PAGES
        self._execute(f"INSERT INTO {name} ({name}, rank) VALUES ('merge', :pages)", pages=pages)
        return self._connection.total_changes - before > 1  # the statement itself counts as one

    def is_merged(self, number: int) -> bool:
        """Whether nothing is left to merge, by our settings: an older release had others."""
        settings = self._execute(f"SELECT k, v FROM {table(number)}_config").fetchall()
        has_own = MERGES.items() <= dict(settings).items()
        return has_own and all(it in ((0, 0), (0, 1)) for it in self.levels(number))

    def set_merges(self, number: int) -> None:
        name = table(number)
        for option, segments in MERGES.items():
            self._execute(f"INSERT INTO {name} ({name}, rank) VALUES ('{option}', {segments})")

    def require_places(self) -> None:
        """Raise DamagedRow if a space's location is damaged: a rebuild would lose its words."""
        rows = self._execute(
            "SELECT id, area, partition, scope = :all FROM spaces ORDER BY id",
            all=spaces.GLOBAL_SCOPE,
        )
        for space, area, number, is_global in rows.fetchall():
            spaces.require_place(space, area, number, is_global=bool(is_global))

    def _require_new(self, area: int) -> None:
        """Raise DamagedRow if an area has memories: the first one created their partition."""
        row = self._execute(
            """SELECT s.id
                 FROM spaces s
                 JOIN memories m ON m.space_id = s.id
                WHERE s.area = :area
                LIMIT 1""",
            area=area,
        ).fetchone()
        if row is not None:
            raise DamagedRow("spaces", row[0], "partition")

    def _of_one(self, area: int) -> int:
        numbers = self._scalars(
            "SELECT DISTINCT partition FROM spaces WHERE area = :area", area=area
        )
        if len(numbers) != 1 or not spaces.is_partition(numbers[0]) or area > spaces.LAST_AREA:
            rows = self._execute(
                "SELECT id, partition FROM spaces WHERE area = :area ORDER BY id", area=area
            ).fetchall()
            sound = [number for _, number in rows if spaces.is_partition(number)]
            for space, number in rows:  # the first damaged one raises
                spaces.require_place(space, area, number)
                if number != sound[0]:
                    raise DamagedRow("spaces", space, "partition")
        return int(numbers[0])

    def _make(self, number: int) -> None:
        """Create a partition, with the rows of the prior after those of its memories.

        BM25 weighs a word by the number of rows: with few rows, or many of other projects, it would
        rank a project's memories differently than the project alone.
        """
        if not self.is_alone:
            raise RunAgain  # creating a table is long, so it must not share a commit
        self._by_area.clear()
        self._execute(
            f"""CREATE VIEW {text_of(number)} (id, title, content, context, tags) AS
                SELECT area << {AREA} | id, title, content, context, tags
                  FROM memory_text
                 WHERE {_lies_in(number)}
                 UNION ALL
                SELECT {PRIOR} | row, '', prior_text(), '', ''
                  FROM (WITH RECURSIVE prior (row) AS (
                            SELECT 0 WHERE prior_rows() > 0
                             UNION ALL
                            SELECT row + 1 FROM prior WHERE row + 1 < prior_rows())
                        SELECT row FROM prior)"""
        )
        self._execute(
            f"""CREATE VIRTUAL TABLE {table(number)} USING fts5 (
                    title, content, context, tags,
                    content = '{text_of(number)}', content_rowid = 'id', tokenize = "{TOKENIZER}"
                )"""
        )
        self.set_merges(number)
        self._execute("INSERT INTO partitions (number) VALUES (:number)", number=number)
        self.rebuild(number)

    def documents(self, ids: Collection[MemoryId]) -> dict[MemoryId, Document]:
        documents = {}
        for id_ in ids:
            # The space is given because the view starts from spaces and would search each of them.
            row = self._execute(
                """SELECT area, title, content, context, tags
                     FROM memory_text
                    WHERE id = :id AND space_id = (SELECT space_id FROM memories WHERE id = :id)""",
                id=id_,
            ).fetchone()
            if row is not None:
                documents[id_] = Document(*row)
        return documents

    def in_portions(
        self, memories: Sequence[MemoryId], size: int
    ) -> Iterator[dict[MemoryId, Document]]:
        for start in range(0, len(memories), size):
            yield self.documents(memories[start : start + size])

    def insert(self, documents: Mapping[MemoryId, Document]) -> None:
        self._forget_areas(documents)
        for number, rows in self._by_partition(documents):
            self._insert_into(number, rows)

    def _insert_into(self, number: int, rows: Sequence[Row]) -> None:
        """Insert many rows by one statement, because FTS5 writes a segment for each statement.

        Statements have few sizes, because each cached statement holds the texts of its last use;
        rows without a number fill them up. A large one is run once more, without any row, so that
        it holds none.
        """
        for start in range(0, len(rows), IMPORTED_AT_ONCE):
            self.segments[number] += 1
            some = rows[start : start + IMPORTED_AT_ONCE]
            size = 1 << (len(some) - 1).bit_length()
            insert = f"""INSERT INTO {table(number)} (rowid, title, content, context, tags)
                         SELECT * FROM (VALUES {", ".join(["(?, ?, ?, ?, ?)"] * size)})
                          WHERE column1 IS NOT NULL"""
            no_rows = [None] * (5 * size)
            values = [*chain.from_iterable(some), *no_rows[5 * len(some) :]]
            self._connection.execute(insert, values)
            if size > AT_ONCE:
                self._connection.execute(insert, no_rows)

    def insert_missing(self, numbers: Sequence[int], memories: Mapping[MemoryId, Waiting]) -> None:
        """Insert memories that partitions lack; new or rebuilt partitions have them already."""
        rows = sorted((row_number(area, id_), id_) for id_, (area, _) in memories.items())
        for number in numbers:
            present = set(
                self._scalars(
                    f"""SELECT value
                          FROM json_each(:rows)
                         WHERE value IN (SELECT id FROM {table(number)}_docsize)""",
                    rows=json.dumps([row for row, _ in rows]),
                )
            )
            missing = [(row, id_) for row, id_ in rows if row not in present]
            unread = self.documents([id_ for _, id_ in missing if memories[id_][1] is None])
            documents = list[Row]()
            for row, id_ in missing:
                if columns := memories[id_][1]:
                    documents.append((row, *columns))
                elif it := unread.get(id_):
                    documents.append((row, it.title, it.content, it.context, it.tags))
            self._insert_into(number, documents)

    def store_stems(self, entries: Mapping[MemoryId, Entry]) -> None:
        self._connection.executemany(
            "REPLACE INTO memory_stems (memory_id, stems) VALUES (?, ?)",
            list(entries.items()),
        )

    def delete(self, documents: Mapping[MemoryId, Document]) -> None:
        self._forget_areas(documents)
        for number, rows in self._by_partition(documents):
            name = table(number)
            self.segments[number] += 1
            self._connection.executemany(
                f"""INSERT INTO {name} ({name}, rowid, title, content, context, tags)
                    VALUES ('delete', ?, ?, ?, ?, ?)""",
                rows,
            )
        self._connection.executemany(
            "DELETE FROM memory_stems WHERE memory_id = ?", [(it,) for it in documents]
        )

    def _forget_areas(self, documents: Mapping[MemoryId, Document]) -> None:
        """Delete the segments of the documents' areas: their words change or are erased."""
        areas = json.dumps(list({it.area for it in documents.values()}))
        listed = "SELECT value FROM json_each(:areas)"
        self._execute(f"DELETE FROM area_stems WHERE area IN ({listed})", areas=areas)

    def _by_partition(
        self, documents: Mapping[MemoryId, Document]
    ) -> Iterator[tuple[int, list[Row]]]:
        """Yield each partition's rows in order: FTS5 writes a segment for each step back."""
        rows: dict[int, list[Row]] = {}
        for id_, it in documents.items():
            row = row_number(it.area, id_), it.title, it.content, it.context, it.tags
            for number in self.of_area(it.area):
                rows.setdefault(number, []).append(row)
        for number in sorted(rows):
            yield number, sorted(rows[number])


def _lies_in(number: int) -> str:
    has_globals = spaces.group_of(number) is spaces.IndexGroup.PROJECTS
    return f"area = {spaces.GLOBAL_AREA} OR " * has_globals + f"partition = {number}"


TOTALS = 1  # the row of FTS5's data that has them
COOKIE = 4  # bytes before the numbers of a structure record
MERGES_OF_A_PURGE = 4  # merges in one call, before a small partition is rebuilt instead
NO_ROW = 0  # a row number that no memory has

Level = tuple[int, int]
"""The number of a level's segments that are being merged, and the number of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """A merge of all segments of a partition, from this level of its storage to the next.

    A deletion is a mark in a new segment; the words stay in older segments. A merge drops both if
    its result is on the last level. FTS5's own `secure-delete` is not enough: it leaves deleted
    words in `_idx`, as separators of pages (2 of 1,000 words that differ only in their last
    letters, in SQLite 3.54.1).
    """

    level: int
    is_last: bool


def numbers(record: bytes) -> Iterator[int]:
    """Decode varints: seven bits a byte, highest first; all bytes but the last have the top bit."""
    number = 0
    for byte in record:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            yield number
            number = 0


AT_ONCE = 64  # documents of one statement, and of one commit while the writer is idle: 2 ms
# The same in an import while no other change waits: larger segments need fewer merges, which saves
# a fifth of the writer's time.
IMPORTED_AT_ONCE = 256

# The areas of a partition; the first partition also counts the global area as its own.
AREAS = f"""SELECT area FROM spaces WHERE partition = :partition
             UNION
            SELECT {spaces.GLOBAL_AREA} WHERE :partition = {spaces.FIRST}"""


def entries_of(stems: Stems, documents: Mapping[MemoryId, Document]) -> dict[MemoryId, Entry]:
    """Compute the stems of some documents, all at once."""
    texts = [
        text for it in documents.values() for text in (it.title, it.content, it.context, it.tags)
    ]
    fields = stems.of_texts(texts)
    return {id_: entry_of(fields[4 * at : 4 * at + 4]) for at, id_ in enumerate(documents)}
