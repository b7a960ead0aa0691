"""A database with a row in every table, values in it that nobody has stored, and all that can be
asked of it then."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from agentops_memory.memory.agents import Tier
from agentops_memory.memory.damage import BY_PLACE, COLUMNS, DERIVED, named
from agentops_memory.memory.rows import micros
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.dialect import read_text
from agentops_memory.sqlite.migrate import apply_migrations

from .answers import (
    AGENTS,
    ANTHROPIC,
    COORDINATORS,
    HOSTS,
    INTENTS,
    MEMORY,
    PROPOSALS,
    REST,
    STORES,
    TASKS,
    Known,
    Writer,
    every_write,
    memory,
    note,
    proposal,
    save_once,
)
from .service import START, Service, serving

ADA = {"X-Agent-ID": "ada"}
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


def fill(path: Path) -> Known:
    """Make a database with rows in every table; its agent is Ada."""
    with serving(path) as service:
        known = every_write(Writer(service.http))
    with closing(connect(path)) as database:
        database.executescript(LEFT)
    return known


NO_TEXT = "CAST(CAST(VALUE AS BLOB) || x'ff' AS TEXT)"
FLIPPED = "char((unicode(VALUE) | 1) - (unicode(VALUE) & 1)) || substr(VALUE, 2)"  # a bit
WRONG: dict[str, tuple[str, ...]] = {
    "TEXT": (NO_TEXT, "x'00ff'", "5"), "INTEGER": ("1 << 62", "-(1 << 62)", "'x'", "1.5", "x'ff'"),
    "BLOB": ("'x'", "7"), "REAL": ("'x'", "x'ff'"),
}  # fmt: skip
"""What a value of each type becomes, and cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What one value of a column becomes."""

    table: str
    column: str
    value: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} = {self.value}"


def damages() -> list[Damage]:
    """All that can be done to one value of every column of every table."""
    with closing(connect(Path(":memory:"))) as database:
        apply_migrations(database)
        columns = database.execute(
            """SELECT t.name, c.name, c.type, c.type = 'INTEGER' AND c.pk
                      AND NOT EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE pk = 2)
                 FROM pragma_table_list t, pragma_table_info(t.name) c
                WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"""
        ).fetchall()
    found = []
    for table, column, type_, is_rowid in columns:
        if table not in DERIVED:
            values = WRONG[type_][: 2 if is_rowid else None]  # no file has another type there
            if column == "fingerprint":
                values = values[2:]
            if type_ == "TEXT" and f"{table}.{column}" in COLUMNS:
                values += (FLIPPED, "'{'")
            found += [Damage(table=table, column=column, value=it) for it in values]
    return found


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


def questions(known: Known) -> Iterator[tuple[str, str]]:
    """What is asked of every route that reads, each behind its path."""
    mark, store = known.mark, f"{STORES}/{known.store}"
    claude, agent = f"{ANTHROPIC}/{known.store}", f"{AGENTS}/agents/{known.mark}"
    intent, ref = f"{INTENTS}/{known.intent_id}", f"memoryRef={known.mark}"
    put, older, deleted = (quote(it, safe="") for it in (known.put, known.older, known.deleted))
    draft = known.proposals[0]
    asked = (
        "/health", "/health/live", "/health/startup", "/health/ready", "/metrics", "/openapi.json",
        "/docs", "/.well-known/openintent.json", "/.well-known/openwop", "/v1/openapi.json",
        *(f"{REST}/{it}{below}" for it in known.memories for below in ("", "/history")),
        *(f"/timeline?observation_id={it}" for it in known.memories),
        "/sessions/recent", f"/sessions/recent?project={mark}&limit=1",
        f"/sessions/recent?before_id={mark}-2", f"{REST}/recent",
        f"{REST}/recent?before_id={known.memories[0]}",
        f"{REST}/recent?project={mark}&tag=fruit", f"{REST}/recent?type={mark}",
        f"/erasures/{known.erasure}", "/search?q=content", f"/search?q=content&project={mark}",
        f"/search?q=content&project={mark}&explain=true&tag=fruit", "/search?q=contentt&type=note",
        "/search?q=content&why_not=1", "/search?q=content&why_not=99", f"/context?project={mark}",
        f"/context?project={mark}&query=content", "/review", "/review?limit=1",
        f"/context?project={mark}&query=next&stores={known.store}",
        f"/context?project={mark}&query=content&explain=true&why_not=1&tag=fruit",
        f"/review?project={mark}&reason=review_due", "/stats", f"/stats?project={mark}", "/export",
        f"/export?project={mark}",
        STORES, f"{STORES}?include_archived=true&name={mark}&limit=1", store,
        f"{store}/memories/{known.entry}", f"{store}/versions/{known.version}",
        f"{store}/search?q={mark}", f"{store}/memories", f"{store}/memories?path_prefix={mark}",
        f"{store}/versions", f"{store}/versions?entry_id={known.entry}",
        ANTHROPIC, f"{ANTHROPIC}?include_archived=true&limit=1", claude,
        f"{claude}/memories/{known.entry}", f"{claude}/memory_versions/{known.version}",
        f"{claude}/memories", f"{claude}/memories?depth=1&view=full",
        f"{claude}/memory_versions?view=full", f"{claude}/memory_versions?operation=modified",
        f"{AGENTS}/memory", f"{AGENTS}/memory?namespace={mark}*&tags={mark}&limit=1",
        f"{AGENTS}/memory/{known.note}", f"{AGENTS}/memory/search?q={mark}+noted",
        f"{AGENTS}/memory/search?q={mark}x&namespace={mark}*&tags={mark}",
        f"{AGENTS}/memory/namespaces", f"{AGENTS}/memory/namespaces/{mark}", f"{agent}/memory",
        f"{agent}/memory/summary", f"{agent}/memory/a%2Fb", f"{agent}/memory/{mark}/b",
        f"{agent}/events", f"{agent}/events?after=0&event_type=x",
        intent, f"{intent}/coordinators", f"{intent}/acl", f"{intent}/tasks",
        f"{intent}/tasks?status=pending&limit=1", f"{intent}/events",
        f"{intent}/events?after=0&limit=2", f"{intent}/events?event_type=comment",
        f"{TASKS}/{known.task_id}", f"{TASKS}/ended", f"{COORDINATORS}/{known.coordinator_id}",
        *(f"{MEMORY}?{ref}{more}" for more in (
            "", f"&tag={mark}&limit=1", "&tokenBudget=20", "&runId=open", f"&before={deleted}",
            f"&runId={mark}&tag={mark}",
        )),
        *(f"{MEMORY}/{it}?{ref}{run}" for it in (put, older, deleted)
          for run in ("", "&runId=open", f"&runId={mark}")),
        f"{HOSTS}/search?{ref}&q={mark}",
        f"{HOSTS}/search?{ref}&q={mark}x&tag={mark}&tokenBudget=20",
        f"{HOSTS}/provenance/{put}?{ref}", f"{HOSTS}/provenance/{older}?{ref}", f"{HOSTS}/refs",
        f"{HOSTS}/refs?limit=1", f"{HOSTS}/refs?after={mark}", f"{HOSTS}/index?{ref}",
        f"{HOSTS}/index?{ref}/passes", f"{HOSTS}/erasures/{known.forgotten}", f"{HOSTS}/events",
        f"{HOSTS}/events?after=2&limit=3", f"{HOSTS}/events?type=memory.written",
        *(f"{HOSTS}/runs/{it}{below}" for it in ("open", mark)
          for below in ("", "/events?after=1")),
        *(f"{PROPOSALS}/{it}" for it in known.proposals), PROPOSALS,
        f"{PROPOSALS}?state=draft&limit=1", f"{PROPOSALS}?kind=agent-pack&after={draft}",
        f"{HOSTS}/artifacts", f"{HOSTS}/artifacts?kind=agent-pack&after={known.installed}",
        f"{HOSTS}/artifacts/{known.installed}", f"{HOSTS}/commitments",
        f"{HOSTS}/commitments?{ref}&state=armed",
        f"{HOSTS}/commitments?after={known.fired}&limit=1",
        f"{HOSTS}/commitments/{known.armed}", f"{HOSTS}/commitments/{known.fired}",
    )  # fmt: skip
    yield from ((it.partition("?")[0], it) for it in asked)


Change = tuple[str, str, dict[str, Any] | None, str | None]


def changes(known: Known) -> Iterator[Change]:
    """Requests that change what is stored, with the key of those that are made once."""
    mark = known.mark
    kept, deleted, again = known.memories
    store, sessions = f"{STORES}/{known.store}", f"/sessions/{mark}"
    entry = f"{store}/memories/{known.entry}"
    yield "POST", REST, save_once(mark), "once"
    yield "POST", REST, memory(mark, "new", None), None
    yield "POST", REST, memory(mark, "changed"), None
    yield "PATCH", f"{REST}/{kept}", {"title": "another title"}, None
    yield "POST", f"{REST}/{deleted}/restore", {"revision": 1}, None
    said = {"messages": [{"role": "user", "content": "x"}]}
    yield "POST", f"{sessions}-2/messages", said, None
    yield "POST", f"{sessions}-2/end", {}, None
    yield "POST", f"{sessions}-1/end", {}, None
    yield "DELETE", f"{REST}/{again}", None, None
    yield "DELETE", f"{REST}/{kept}?hard=true", None, None
    yield "POST", f"{store}/memories", {"path": "new", "content": "new"}, None
    yield "PUT", entry, {"content": f"{mark} yellow"}, None
    yield "POST", f"{store}/versions/{known.version}/redact", None, None
    yield "DELETE", entry, None, None
    yield from _changes_of_work(known)
    yield from _changes_of_hosts(known)
    closed = {"permissions": {"default": "none"}}
    yield "PATCH", f"{AGENTS}/memory/namespaces/{mark}", closed, None
    yield "DELETE", f"{AGENTS}/memory/{known.note}", None, None
    yield "DELETE", f"{AGENTS}/memory/batch?tags={mark}", None, None
    yield "DELETE", store, None, None
    yield "DELETE", f"/projects/{mark}?hard=true&dry_run=true", None, None
    yield "DELETE", f"/projects/{mark}?hard=true", None, None


def _changes_of_work(known: Known) -> Iterator[Change]:
    """The last ones end a task, which the first has brought there."""
    mark, intent, task = known.mark, known.intent_id, f"{TASKS}/{known.task_id}"
    one, scope = f"{INTENTS}/{intent}", {"task_id": known.task_id}
    bound = note(mark, Tier.WORKING, "new", scope=scope, ttl="task_lifetime")
    yield "PATCH", task, {"status": "running", "metadata": {"a": "c"}}, None
    yield "POST", f"{AGENTS}/memory", bound, None
    shared = {"namespace": "shared", "memory_type": "semantic"}
    yield "POST", f"{AGENTS}/memory", bound | shared, None
    yield "POST", INTENTS, {"title": "Pears", "id": "pears"}, None
    for _ in range(2):
        yield "POST", TASKS, {"intent_id": intent, "name": "Sell", "id": "sell"}, "sold"
    yield "POST", f"{one}/events", {"event_type": "comment"}, None
    yield "POST", COORDINATORS, {"intent_id": intent, "agent_id": "bob"}, None
    yield "DELETE", f"{COORDINATORS}/{known.coordinator_id}", None, None
    yield "POST", f"{one}/acl/entries", {"principal_id": "eve"}, None
    yield "DELETE", f"{one}/acl/entries/{known.grant_id}", None, None
    yield "PATCH", task, {"status": "completed"}, None
    yield "PATCH", f"{TASKS}/ended", {"status": "ready"}, None


def _changes_of_hosts(known: Known) -> Iterator[Change]:
    mark, runs, passes = known.mark, f"{HOSTS}/runs", {"memoryRef": f"{known.mark}/passes"}
    put: dict[str, Any] = {"memoryRef": mark, "content": f"{mark} green", "tags": [mark]}
    for _ in range(2):
        yield "POST", MEMORY, put, "put"
    yield "POST", MEMORY, put | {"supersedes": [known.older], "id": f"{mark}/new"}, None
    yield "POST", MEMORY, put | {"runId": "open", "nodeId": "pick"}, None
    yield "POST", MEMORY, put | {"tags": ["harvest", "when:snow"]}, None
    waits = {"memoryRef": mark, "memoryId": known.put, "condition": "predicate", "tag": "snow"}
    for _ in range(2):
        yield "POST", f"{HOSTS}/commitments", waits, "commitment"
    yield "DELETE", f"{HOSTS}/commitments/{known.armed}", None, None
    yield "POST", runs, {"runId": "next", "memoryRefs": [mark]}, "run"
    yield "POST", runs, {"runId": "open", "agentId": mark}, None
    yield "POST", f"{runs}/open/secrets", {"secretId": "a", "value": "wombat-wombat"}, None
    yield "POST", f"{runs}/{mark}/fork", {"mode": "replay"}, None
    yield "POST", f"{runs}/{mark}/fork", {"mode": "branch", "fromSeq": 2}, None
    draft, repeated, applied = (f"{PROPOSALS}/{it}" for it in known.proposals)
    for _ in range(2):
        yield "POST", PROPOSALS, proposal(mark), "propose"
    yield "PATCH", repeated, {"artifact": proposal(mark)["artifact"]}, None
    for _ in range(2):
        yield "POST", f"{draft}/apply", {}, "apply"
    yield "POST", f"{repeated}/reject", {}, None
    yield "DELETE", applied, None, None
    where = f"memoryRef={mark}&runId=open"
    yield "DELETE", f"{MEMORY}/{quote(known.put, safe='')}?{where}", None, None
    yield "POST", f"{runs}/open/end", {"status": "failed"}, None
    for _ in range(2):
        yield "POST", f"{HOSTS}/distill", passes | {"recursive": True}, "distill"
    for done in ("consolidate", "compact"):
        yield "POST", f"{HOSTS}/{done}", {"memoryRef": mark}, None
    yield "POST", f"{HOSTS}/passes/{known.merge}/undo", None, None
    yield "POST", f"{HOSTS}/forget", {"subject": mark}, None


def failures(answers: Iterator[httpx.Response]) -> list[str]:
    """What was answered with a fault of the program, but for what names the row that it is for."""
    return [
        f"{it.request.method} {it.request.url.raw_path.decode()}: {it.status_code} {it.text}"
        for it in answers
        if it.status_code >= 500 and not is_of_a_restriction(it)
    ]


def is_of_a_restriction(answer: httpx.Response) -> bool:
    """Whether it is refused for a damaged row."""
    found = re.search(
        # An index has been read that does not have it.
        r"row \S+ of \w+ is damaged|a row that it needs is damaged|The database file is damaged",
        answer.text,
    )
    return answer.status_code == 503 and found is not None


DESCRIPTIONS = {"/openapi.json", "/docs"}  # of the program: nothing that is stored is in them


def asked(service: Service, known: Known) -> Iterator[httpx.Response]:
    for path, question in questions(known):
        if path in DESCRIPTIONS:  # each takes longer than all others together
            continue
        yield service.http.get(question, headers=ADA)


def changed(service: Service, known: Known) -> Iterator[httpx.Response]:
    for method, path, body, key in changes(known):
        headers = ADA | ({"Idempotency-Key": key} if key else {})
        if method == "PATCH" and path.startswith(TASKS):
            headers["If-Match"] = str(_version(service.http, path))
        yield service.http.request(method, path, json=body, headers=headers)


def _version(http: httpx.Client, task: str) -> int:
    """The version of a task, or any if it is not there."""
    return int(http.get(task, headers=ADA).json().get("version", 1))
