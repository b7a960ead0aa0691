"""A database with a row of every kind, values in it that nobody has stored, and all that can be
asked of it then."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from agentops_memory.memory.agents import Tier
from agentops_memory.memory.damage import BY_PLACE, COLUMNS, DERIVED, named
from agentops_memory.memory.rows import micros
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.dialect import read_text
from agentops_memory.sqlite.migrate import apply_migrations

from .damaged_hosts import ERASED, KnownHosts, fill_hosts, host_changes, host_questions
from .service import START, Service, serving
from .stores import STORES, at, delete, entry, entry_at, ok, redact, store, update, versions

ADA = {"X-Agent-ID": "ada"}
INTENTS, TASKS, COORDINATORS = (f"/api/v1/{it}" for it in ("intents", "tasks", "coordinators"))
POLICY = {
    "archive_on_completion": True, "inherit_from_parent": True, "max_entries": 10,
    "max_total_size_kb": 64,
}  # fmt: skip
GUARDRAILS = {
    "max_working_memory_per_task": 9, "max_episodic_memory_per_agent": 9,
    "allowed_semantic_namespaces": ["shared"], "denied_semantic_namespaces": ["secret"],
    "memory_archive_required": True,
}  # fmt: skip

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
"""
"""What a process leaves that was killed before it had moved the values of a large task, and before
all commitments had fired that were met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIntents:
    """How intents and what is of them are addressed."""

    intent_id: str
    task_id: str
    coordinator_id: str
    grant_id: str


def fill_intents(http: httpx.Client) -> KnownIntents:
    """Make an intent with everything that there can be of one."""

    def made(where: str, **body: object) -> str:
        return str(ok(http.post(where, json=body, headers=ADA), 201)["id"])

    intent = made(
        INTENTS, title="Apples", description="All of them.", state={"ripe": True},
        constraints={"until": "May"}, depends_on=["spring"], governance_policy={"a": 1},
    )  # fmt: skip
    of = {"intent_id": intent, "assigned_agent": "ada"}
    task = made(
        TASKS, name="Pick", memory_policy=POLICY, artifacts=["a basket"], input={"trees": 7},
        requires_tools=[{"service": "ladder", "scopes": ["high"]}], metadata={"a": "b"}, **of,
    )  # fmt: skip
    part = made(TASKS, name="Pick some", parent_task_id=task, memory_policy=POLICY, **of)
    made(TASKS, name="Carry", id="ended", **of)
    over = made(TASKS, name="Eat", **of)
    coordinator = made(
        COORDINATORS, intent_id=intent, agent_id="ada", guardrails=GUARDRAILS,
        expires_at="2040-01-01T00:00:00Z", metadata={"a": "b"},
    )  # fmt: skip
    grant = made(
        f"{INTENTS}/{intent}/acl/entries", principal_id="bob", permission="write",
        reason="He asked.", expires_at="2040-01-01T00:00:00Z",
    )  # fmt: skip
    made(f"{INTENTS}/{intent}/events", event_type="comment", payload={"said": "a red one"})
    kinds = [(task, "working"), (part, "working"), ("ended", "working"), (over, "working"),
             (task, "episodic")]  # fmt: skip
    for number, (name, tier) in enumerate(kinds):
        made(
            "/api/v1/memory", agent_id="ada", namespace=f"bound {tier}", key=f"apple {number}",
            value={"apple": "red"}, memory_type=tier, scope={"task_id": name}, tags=["fruit"],
        )  # fmt: skip
    for status in ("running", "completed"):  # the versions 1 and 2
        match = ADA | {"If-Match": "1" if status == "running" else "2"}
        ok(http.patch(f"{TASKS}/{over}", json={"status": status}, headers=match))
    return KnownIntents(intent_id=intent, task_id=task, coordinator_id=coordinator, grant_id=grant)


def intent_questions() -> dict[str, tuple[str, ...]]:
    """What is asked of each route that reads, by its path as it is described."""
    one = f"{INTENTS}/{{intent_id}}"
    return {
        one: ("",), f"{one}/coordinators": ("",), f"{one}/acl": ("",),
        f"{one}/tasks": ("", "?status=pending&limit=1"),
        f"{one}/events": ("", "?after=0&limit=2", "?event_type=comment"),
        f"{TASKS}/{{task_id}}": ("", f"{TASKS}/ended"),
        f"{COORDINATORS}/{{coordinator_id}}": ("",),
    }  # fmt: skip


def intent_changes(
    known: KnownIntents,
) -> Iterator[tuple[str, str, dict[str, Any] | None, str | None]]:
    """Requests that change them: the last one ends a task, which the first has brought there."""
    one, task = f"{INTENTS}/{known.intent_id}", f"{TASKS}/{known.task_id}"
    bound = {
        "agent_id": "ada", "namespace": "bound working", "key": "new", "value": {"apple": "blue"},
        "memory_type": "working", "scope": {"task_id": known.task_id}, "ttl": "task_lifetime",
    }  # fmt: skip
    yield "PATCH", task, {"status": "running", "metadata": {"a": "c"}}, None
    yield "POST", "/api/v1/memory", bound, None
    shared = {"namespace": "shared", "memory_type": "semantic"}
    yield "POST", "/api/v1/memory", bound | shared, None
    yield "POST", INTENTS, {"title": "Pears", "id": "pears"}, None
    yield "POST", TASKS, {"intent_id": known.intent_id, "name": "Sell", "id": "sell"}, "sold"
    yield "POST", TASKS, {"intent_id": known.intent_id, "name": "Sell", "id": "sell"}, "sold"
    yield "POST", f"{one}/events", {"event_type": "comment"}, None
    yield "POST", COORDINATORS, {"intent_id": known.intent_id, "agent_id": "bob"}, None
    yield "DELETE", f"{COORDINATORS}/{known.coordinator_id}", None, None
    yield "POST", f"{one}/acl/entries", {"principal_id": "eve"}, None
    yield "DELETE", f"{one}/acl/entries/{known.grant_id}", None, None
    yield "PATCH", task, {"status": "completed"}, None
    yield "PATCH", f"{TASKS}/ended", {"status": "ready"}, None


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


SAVE = {
    "session_id": "s1", "project": "demo", "type": "note", "title": "by key",
    "content": "a kiwi", "tags": ["fruit"],
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How what is stored is addressed."""

    memories: list[int]
    erasure: str
    store: str
    entry: str
    version: str
    note: str
    intents: KnownIntents
    hosts: KnownHosts


def fill(path: Path) -> Known:
    """Make a database with rows in every table."""
    with serving(path) as service:
        http = service.http
        kept = service.save("apple one", tags=["fruit"], topic_key="trees/apple")["id"]
        service.clock.advance(minutes=1)
        service.save("apple two", tags=["fruit"], topic_key="trees/apple")
        deleted, erased = service.save("a pear")["id"], service.save("a plum")["id"]
        service.save("global apple", scope="global", title="of all")
        answer = http.post("/observations", json=SAVE, headers={"Idempotency-Key": "once"})
        again = ok(answer, 201)["id"]
        lively = {"pinned": True, "ttl": 86_400, "review_at": "2030-01-01T12:00:30Z"}
        like = service.save("a fig", supersedes=[service.save("an old fig")["id"]], **lively)["id"]
        http.post(f"/observations/{like}/confirm")
        service.save("an apple of old", expires_at="2000-01-01T00:00:00Z", topic_key="trees/old")
        service.save("a new apple tree", topic_key="trees/old")
        alike = http.post(
            "/observations?similar=3", json=SAVE | {"content": "kiwi of May", "title": "like it"}
        )
        assert ok(alike, 201)["similar"]
        http.delete(f"/observations/{deleted}")
        receipt = http.delete(f"/observations/{erased}?hard=true").headers["x-erasure-id"]
        said = [{"role": "user", "content": "an apple?"}, {"role": "assistant", "content": "yes"}]
        http.post("/sessions/s1/end", json={"messages": said})
        http.post("/sessions", json={"id": "s2", "project": "demo"})
        http.post("/sessions/s2/messages", json={"messages": said})
        own = store(http, metadata={"of": "apples"})
        first = entry(http, own, "apples/red", "a red apple", metadata={"a": "b"})
        update(http, own, first, "a green apple")
        gone = entry(http, own, "apples/blue", "a blue apple")
        delete(http, entry_at(own, gone))
        old = entry(http, own, "apples/old", "an old apple")
        update(http, own, old, "a new apple")
        redact(http, own, versions(http, own, entry_id=old["id"])[-1])
        other = store(http, "archived")
        ok(http.post(at(other, "archive")))
        version = versions(http, own, entry_id=first["id"])[0]["id"]
        note, intents, hosts = _of_agents(http), fill_intents(http), fill_hosts(http)
    with closing(connect(path)) as database:
        database.executescript(LEFT)
        database.executescript(ERASED)
        database.execute("INSERT INTO agents (name, episodic_capacity) VALUES ('ada', 500)")
    return Known(
        memories=[int(str(it)) for it in (kept, deleted, again)], erasure=receipt, store=own["id"],
        entry=first["id"], version=version, note=note, intents=intents, hosts=hosts,
    )  # fmt: skip


SENSITIVITY = {Tier.WORKING: "confidential", Tier.EPISODIC: "internal", Tier.SEMANTIC: "public"}


def _of_agents(http: httpx.Client) -> str:
    """What an agent has in each tier, and the id of an entry."""
    ids = []
    for tier in Tier:
        body = {
            "agent_id": "ada", "namespace": f"notes of {tier}", "key": "apple",
            "value": {"apple": "green"}, "memory_type": tier, "tags": ["fruit"],
            "sensitivity": SENSITIVITY[tier], "curated_by": "bob", "ttl": "duration:P9Y",
            "scope": {"task_id": "picking", "intent_id": "harvest"},
        }  # fmt: skip
        ids.append(ok(http.post("/api/v1/memory", json=body, headers=ADA), 201)["id"])
    permissions = {"permissions": {"allow": [{"agent": "ada", "access": "write"}]}}
    ok(http.patch("/api/v1/memory/namespaces/notes", json=permissions, headers=ADA))
    return str(ids[-1])


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
    """Every route that reads, by its path as it is described, and what is asked of it."""
    store, claude = f"{STORES}/{{store_id}}", "/anthropic/v1/memory_stores"
    of_claude, agent = f"{claude}/{{memory_store_id}}", "/api/v1/agents/{agent}"
    ids = {
        "store_id": known.store, "entry_id": known.entry, "version_id": known.version,
        "memory_store_id": known.store, "memory_id": known.entry, "agent": "ada",
        "memory_version_id": known.version, "namespace": "notes", **asdict(known.intents),
    }  # fmt: skip
    plain = (
        "/health", "/health/live", "/health/startup", "/health/ready", "/metrics", "/openapi.json",
        "/docs", store, f"{store}/memories/{{entry_id}}", f"{store}/versions/{{version_id}}",
        of_claude, f"{of_claude}/memories/{{memory_id}}",
        f"{of_claude}/memory_versions/{{memory_version_id}}", "/.well-known/openintent.json",
        "/api/v1/memory/namespaces", "/api/v1/memory/namespaces/{namespace}", f"{agent}/memory",
        f"{agent}/memory/summary",
    )  # fmt: skip
    asked: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(plain, ("",)),
        "/sessions/recent": ("", "?project=demo&limit=1", "?before_id=s2"),
        "/observations/recent": ("", "?project=demo&tag=fruit", "?before_id=1", "?type=note"),
        "/observations/{id}": tuple(f"/observations/{it}" for it in known.memories),
        "/observations/{id}/history": tuple(
            f"/observations/{it}/history" for it in known.memories
        ),
        "/erasures/{id}": (f"/erasures/{known.erasure}",),
        "/search": (
            "?q=apple", "?q=apple&project=demo&explain=true&tag=fruit", "?q=trees/apple",
            "?q=aple&type=discovery", "?q=apple&why_not=1", "?q=apple&why_not=99",
        ),
        "/context": (
            "?project=demo&query=apple", f"?project=demo&query=red&stores={known.store}",
            "?project=demo&query=apple&explain=true&why_not=1&tag=fruit", "?project=demo",
        ),
        "/review": ("", "?project=demo&reason=review_due", "?limit=1"),
        "/timeline": tuple(f"?observation_id={it}" for it in known.memories),
        "/stats": ("", "?project=demo"), "/export": ("", "?project=demo"),
        STORES: ("", "?include_archived=true&name=notes&limit=1"),
        f"{store}/search": ("?q=apple",), f"{store}/memories": ("", "?path_prefix=a"),
        f"{store}/versions": ("", f"?entry_id={known.entry}"),
        claude: ("", "?include_archived=true&limit=1"),
        f"{of_claude}/memories": ("", "?depth=1&view=full"),
        f"{of_claude}/memory_versions": ("?view=full", "?operation=modified"),
        "/api/v1/memory": ("", "?namespace=notes*&tags=fruit&limit=1"),
        "/api/v1/memory/{entry_id}": (f"/api/v1/memory/{known.note}",),
        "/api/v1/memory/search": ("?q=green+apple", "?q=aple&namespace=notes*&tags=fruit"),
        f"{agent}/memory/{{namespace}}": ("/api/v1/agents/ada/memory/a%2Fb",),
        f"{agent}/memory/{{namespace}}/{{key}}": (
            "/api/v1/agents/ada/memory/notes%20of%20episodic/apple",
        ),
        f"{agent}/events": ("", "?after=0&event_type=x"),
        **intent_questions(),
        **host_questions(known.hosts),
    }  # fmt: skip
    for path, ways in asked.items():
        for way in ways:
            yield path, way if way.startswith("/") else path.format(**ids) + way


def changes(known: Known) -> Iterator[tuple[str, str, dict[str, Any] | None, str | None]]:
    """Requests that change what is stored, with the key of those that are made once."""
    kept, deleted, again = known.memories
    stores = STORES
    mem = f"{stores}/{known.store}/memories/{known.entry}"
    yield "POST", "/observations", SAVE, "once"
    yield "POST", "/observations", {**SAVE, "title": "new", "content": "new"}, None
    yield "POST", "/observations", {**SAVE, "topic_key": "trees/apple", "content": "changed"}, None
    yield "PATCH", f"/observations/{kept}", {"title": "another title"}, None
    yield "POST", f"/observations/{deleted}/restore", {"revision": 1}, None
    yield "POST", "/sessions/s2/messages", {"messages": [{"role": "user", "content": "x"}]}, None
    yield "POST", "/sessions/s2/end", {}, None
    yield "POST", "/sessions/s1/end", {}, None
    yield "DELETE", f"/observations/{again}", None, None
    yield "DELETE", f"/observations/{kept}?hard=true", None, None
    yield "POST", f"{stores}/{known.store}/memories", {"path": "new", "content": "new"}, None
    yield "PUT", mem, {"content": "a yellow apple"}, None
    yield "POST", f"{stores}/{known.store}/versions/{known.version}/redact", None, None
    yield "DELETE", mem, None, None
    yield from intent_changes(known.intents)
    yield from host_changes(known.hosts)
    yield "PATCH", "/api/v1/memory/namespaces/notes", {"permissions": {"default": "none"}}, None
    yield "DELETE", f"/api/v1/memory/{known.note}", None, None
    yield "DELETE", "/api/v1/memory/batch?tags=fruit", None, None
    yield "DELETE", f"{stores}/{known.store}", None, None
    yield "DELETE", "/projects/demo?hard=true&dry_run=true", None, None
    yield "DELETE", "/projects/demo?hard=true", None, None


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
