"""Values in a database that nobody has stored."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from agentops_memory.memory.damage import BY_PLACE, named
from agentops_memory.memory.rows import micros
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.dialect import read_text

from .service import START

LEFT = f"""
    UPDATE tasks SET status = 'completed', completed_at = {micros(START)} WHERE id = 'ended';
    INSERT INTO events (uid, type, payload, at)
    VALUES ('0194a0a0-0000-7000-8000-000000000001', 'memory.archived', '{{"entries_archived": 1}}',
            {micros(START)});
    INSERT INTO agent_events (event_id, agent, actor, task, intent, binding)
    SELECT max(events.id), 'ada', 'ada', tasks.id, tasks.intent, 2
      FROM events, tasks
     WHERE tasks.id = 'ended';
    INSERT INTO pending_archives (event_id, task, attempt, agent, first, last, size)
    SELECT (SELECT max(id) FROM events), 'ended', 1, 'ada', memory_id, memory_id, size
      FROM agent_memories
     WHERE task = 'ended';
    INSERT INTO met_tags (space_id, tag, newest)
    SELECT space_id, tag, id
      FROM commitments
     WHERE tag = 'harvest';
    INSERT INTO ref_losses (memory_id, space_id, ends_at, deleted_after)
    SELECT 1 << 40, space_id, {micros(START)}, 0 FROM refs LIMIT 1;
    INSERT INTO agents (name, episodic_capacity) VALUES ('ada', 500);
"""
"""What a process leaves that was killed before it had moved the values of a large task, and before
all commitments had fired that were met; what is kept of an erased entry; and a capacity."""


NO_TEXT = "CAST(CAST(VALUE AS BLOB) || x'ff' AS TEXT)"


def damage(path: Path, table: str, column: str, value: str) -> str:
    """Let one row hold in a column what it cannot, if it has something there; the row's key."""
    with closing(connect(path)) as database:
        database.text_factory = read_text
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("PRAGMA foreign_keys = OFF")
        keys = ", ".join(
            name
            for (name,) in database.execute(
                "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", (table,)
            )
        )
        place = "rowid" if table in BY_PLACE else keys.partition(",")[0]
        ((sql,),) = database.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,))
        _declare(
            database, table, re.sub(r" (TEXT|INTEGER(?! +PRIMARY)|REAL|BLOB)\b| STRICT,?", "", sql)
        )
        value = value.replace("VALUE", f"coalesce({column}, 'a')")
        (after,) = database.execute(
            f"""UPDATE {table}
                   SET {column} = {value}
                 WHERE ({keys}) = (SELECT {keys}
                                     FROM {table}
                                 ORDER BY {column} IS NULL
                                    LIMIT 1)
             RETURNING {place}"""
        ).fetchone()
        _declare(database, table, sql)
    return named(after)


def _declare(database: sqlite3.Connection, table: str, sql: str) -> None:
    database.execute("PRAGMA writable_schema = ON")
    database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, table))
    database.execute("PRAGMA writable_schema = RESET")


def is_of_a_restriction(answer: httpx.Response) -> bool:
    """Whether it is refused for a damaged row."""
    found = re.search(
        # An index has been read that does not have it.
        r"row \S+ of \w+ is damaged|a row that it needs is damaged|The database file is damaged",
        answer.text,
    )
    return answer.status_code == 503 and found is not None
