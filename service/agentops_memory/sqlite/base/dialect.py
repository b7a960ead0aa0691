"""What SQLite says in its own way: its dialect, and the functions of ours that its SQL calls."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from ...engine.shared.stems import rules
from ...errors import DamagedRow
from ...memory.model.access import Patterns
from ...memory.model.ranking import PRIOR_MEMORIES, PRIOR_WORDS
from ...memory.model.rows import tag_tuple
from ...memory.model.space import Project
from ...memory.model.table import Connection, Dialect, Table
from ...recall.text.features import ALL, Feature, Features
from ...recall.text.json_words import words_of
from ...recall.text.normalization import End, borrows, context, fingerprint, indexed, tags_column
from .errors import decoded

PRIOR_TEXT = " ".join(["\ufe00"] * PRIOR_WORDS)  # a word that no text has: `unified` drops it


def _inserted(connection: Connection, statement: str, parameters: Mapping[str, object]) -> int:
    # RETURNING would double what an INSERT costs.
    cursor = cast(sqlite3.Cursor, connection.execute(statement, parameters))
    return cursor.lastrowid or 0


def _inserted_all(
    connection: Connection, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> Sequence[int]:
    values = ", ".join("?" * len(columns))
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"
    cast(sqlite3.Connection, connection).executemany(insert, rows)
    ((last,),) = connection.execute("SELECT last_insert_rowid()", {})
    return range(last - len(rows) + 1, last + 1)  # nobody else inserts meanwhile


def _gathered(*values: str) -> str:
    row = values[0] if len(values) == 1 else f"json_array({', '.join(values)})"
    return f"json_group_array({row})"


def _note(connection: Connection, damage: DamagedRow) -> None:
    cast(Any, connection).damaged.append(damage)


SQLITE = Dialect(
    note=_note,
    row="rowid",
    read=lambda connection, query, parameters: connection.execute(query, parameters),
    inserted=_inserted,
    inserted_all=_inserted_all,
    leads="CROSS JOIN",
    hint="INDEXED BY {}".format,
    each="JOIN memories m ON m.id IN ({})".format,
    reordered=lambda _: "",
    greatest="max",
    least="min",
    ids="json_each(:ids) {}".format,
    texts="json_each(:texts) {}".format,
    gathered=_gathered,
    tags_of="json_each(CASE WHEN json_valid({0}.tags) THEN {0}.tags ELSE '[]' END)".format,
    element="CASE WHEN json_valid({0}) THEN json_extract({0}, '$[{1}]') END".format,
    bytes_of="length(CAST({} AS BLOB))".format,
    contains="instr({}, {}) > 0".format,
    acts_on="acted_on(:patterns, CAST({} AS BLOB))".format,
)


class SqliteTable(Table):
    """A table that only SQLite has."""

    _connection: sqlite3.Connection

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sql = SQLITE


def registered(database: sqlite3.Connection, features: Features = ALL) -> None:
    """Make the functions known to a connection. All are pure.

    Those that take what rows hold take its bytes: of a text that is no UTF-8, SQLite's
    adapter could not make a string.
    """
    functions: dict[str, tuple[int, Callable[..., str | int]]] = {
        "indexed_text": (1, lambda text: indexed(decoded(text), features)),
        "indexed_value": (1, lambda value: indexed(words_of(decoded(value)), features)),
        "indexed_tags": (1, lambda tags: _indexed_tags(decoded(tags), features)),
        "borrows": (1, lambda content: borrows(decoded(content), features)),
        "borrowed": (2, lambda *texts: context((End(decoded(it)) for it in texts if it), features)),
        "fingerprint_of": (4, _fingerprint),
        "acted_on": (2, _acted_on),
    }
    prior, own = PRIOR_MEMORIES if Feature.PRIOR in features else 0, rules(features)
    functions["prior_rows"] = 0, lambda: prior
    functions["prior_text"] = 0, lambda: PRIOR_TEXT
    functions["own_rules"] = 0, lambda: own
    names = json.dumps(sorted(features))
    functions["own_features"] = 0, lambda: names
    for name, (arguments, function) in functions.items():
        database.create_function(name, arguments, function, deterministic=True)


def _fingerprint(key: bytes | None, *said: bytes) -> int:
    return fingerprint(None if key is None else decoded(key), *map(decoded, said))


def _acted_on(names: str, project: bytes | None) -> bool:
    return project is not None and _patterns(names).match(Project(decoded(project)))


@lru_cache(256)
def _patterns(names: str) -> Patterns:
    return Patterns(tuple(json.loads(names)))


@lru_cache(256)
def _indexed_tags(tags: str, features: Features) -> str:
    return tags_column(tag_tuple(tags), features)
