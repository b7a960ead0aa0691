"""Keys and the audit in a database: every service on it sees a change, and each is audited."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentops_memory.errors import Unavailable
from agentops_memory.postgresql.connection import LOCK

from ..support import postgres
from ..support.pods import looked
from ..support.process import until
from ..support.service import START, Service, serving
from ..support.terminal import Terminal

Start = Callable[[], Service]


@pytest.fixture
def start(postgresql: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a service on the database; there may be several."""
    with ExitStack() as running:
        yield lambda: running.enter_context(
            serving(
                tmp_path / "memory.db", MEMORY_DATABASE_URL=postgresql, MEMORY_SWEEP_EVERY="50ms"
            )
        )


@pytest.fixture
def terminal(postgresql: str) -> Terminal:
    return Terminal({"MEMORY_DATABASE_URL": postgresql})


def created(terminal: Terminal, *options: str) -> dict[str, Any]:
    key: dict[str, Any] = terminal.json(
        "keys", "create", "--name", "ci", "--role", "admin", *options
    )
    return key


def status(service: Service, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return service.http.get("/stats", headers=headers).status_code


@pytest.mark.slow
def test_a_change_that_nobody_is_told_of_is_seen(
    start: Start, terminal: Terminal, postgresql: str
) -> None:
    """As behind a pooler, through which no notification comes."""
    service, key = start(), created(terminal)
    until(lambda: status(service, key["key"]) == 200)

    record = json.loads(looked(postgresql, "SELECT record FROM agentops.keys")[0][0])
    record |= {"secrets": [], "revoked_at": record["created_at"]}
    postgres.ordered(
        postgresql,
        f"UPDATE agentops.keys SET record = '{json.dumps(record)}'",
        "UPDATE agentops.control SET key_changes = key_changes + 1",
    )

    until(lambda: status(service, key["key"]) == 401)


def test_keys_that_are_gone_or_cannot_be_read_open_nothing_and_a_reset_opens_it_again(
    start: Start, terminal: Terminal, postgresql: str
) -> None:
    key = created(terminal)
    (record,) = looked(postgresql, "SELECT record FROM agentops.keys")[0]
    postgres.ordered(
        postgresql, """UPDATE agentops.keys SET record = replace(record, '"admin"', '"king"')"""
    )
    done = terminal.run("keys", "list")
    assert f"The keys in the database cannot be used: key {key['id']}: its role" in done.output
    assert json.loads(record)["secrets"][0]["salt"] not in done.output

    postgres.ordered(postgresql, "DELETE FROM agentops.keys")
    with pytest.raises(Unavailable, match=r"^Keys were created, but the database has none\."):
        start()
    assert "Keys were created" in terminal.run("keys", "list").output
    assert "are lost" in terminal.run("keys", "create", "--name", "a", "--role", "admin").stderr
    assert [line.split()[1] for line in terminal.say("keys", "list").splitlines()[1:]] == ["a"]

    service = start()
    assert status(service) == 401
    assert terminal.say("keys", "reset", "--open") == "Deleted 1 key; no key is left.\n"
    until(lambda: status(service) == 200)


def test_a_change_that_cannot_be_audited_does_not_happen(
    terminal: Terminal, postgresql: str
) -> None:
    created(terminal)
    postgres.ordered(
        postgresql,
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE read_only_sql_transaction; END $$",
        "CREATE TRIGGER no_more BEFORE INSERT ON agentops.audit EXECUTE FUNCTION public.refuse()",
    )

    done = terminal.run("keys", "create", "--name", "second", "--role", "admin")

    assert done.exit_code == 1
    assert looked(postgresql, "SELECT count(*) FROM agentops.keys") == [(1,)]
    assert looked(postgresql, "SELECT has_keys, key_changes FROM agentops.control") == [(True, 1)]


@pytest.mark.slow
def test_rows_of_the_audit_are_lines_of_the_file(
    terminal: Terminal, postgresql: str, tmp_path: Path
) -> None:
    path = tmp_path / "files" / "memory.db"
    for each in (terminal, Terminal({"MEMORY_DB_PATH": str(path)})):
        key = created(each, "--project", "shop-*", "--agent", "coder")
        each.say("keys", "revoke", key["id"])
        each.say("tenants", "create", "acme")
        each.say("tenants", "erase", "acme", "--yes")
        each.say("keys", "reset", "--open")

    ours = [
        line for (line,) in looked(postgresql, "SELECT line FROM agentops.audit ORDER BY number")
    ]
    theirs = path.with_name("memory.db.audit").read_text("utf-8").splitlines()
    assert [shape(line) for line in ours] == [shape(line) for line in theirs]


def shape(line: str) -> list[object]:
    """The fields of a line in their order, without what differs from one time to the next."""
    entry = json.loads(line)
    return [(name, None if name in ("at", "key", "bytes") else it) for name, it in entry.items()]


@pytest.mark.slow
def test_the_audit_is_measured_and_trimmed_by_age(
    start: Start, terminal: Terminal, postgresql: str
) -> None:
    created(terminal)
    terminal.say("keys", "reset", "--open")
    at = START.timestamp() * 1_000_000
    postgres.ordered(
        postgresql, f"UPDATE agentops.audit SET at = CASE number WHEN 1 THEN 0 ELSE {at:.0f} END"
    )

    told = terminal.json("stats", "--storage")["audit"]

    assert (told["rows"], told["next_sweep"]) == (2, 1)
    start().clock.advance(minutes=6)  # so that it trusts its clock
    until(lambda: looked(postgresql, "SELECT count(*) FROM agentops.audit") == [(1,)])


@pytest.mark.slow
def test_a_change_is_refused_for_now_while_the_audit_cannot_be_written(
    start: Start, postgresql: str
) -> None:
    service = start()
    service.save("A queue that is retried for ever fills the disk.", project="shop")
    name = postgresql.partition("?")[0].rpartition("/")[2]

    postgres.ordered(postgresql, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        answer = service.http.delete("/projects/shop?hard=true")
    finally:
        elsewhere = postgres.of(postgresql, "template1")
        postgres.ordered(elsewhere, f"ALTER DATABASE {name} RESET default_transaction_read_only")

    assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "1")
    assert "The database is read-only" in answer.text


def test_who_begins_with_a_database_waits_for_who_makes_what_is_shared(
    blank_database: str, path: Path
) -> None:
    terminal = Terminal({"MEMORY_DATABASE_URL": blank_database})
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    with ExitStack() as running, ThreadPoolExecutor(2) as threads:
        with psycopg.connect(blank_database) as migrating:
            migrating.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            made = threads.submit(created, terminal)
            started = threads.submit(
                running.enter_context, serving(path, MEMORY_DATABASE_URL=blank_database)
            )
            until(lambda: len(looked(blank_database, waiting)) == 2)
        key = made.result()
        until(lambda: status(started.result(), key["key"]) == 200)

    assert looked(blank_database, "SELECT version, has_keys FROM agentops.control") == [(1, True)]


def test_what_a_newer_release_has_made_of_it_stays(terminal: Terminal, postgresql: str) -> None:
    newer = "SELECT prosrc FROM pg_proc WHERE proname = 'element'"
    postgres.ordered(
        postgresql,
        "CREATE OR REPLACE FUNCTION agentops.element(said TEXT, place INTEGER) RETURNS TEXT "
        "LANGUAGE sql AS $$ SELECT said::json ->> place $$",
        "UPDATE agentops.control SET version = 2",
    )

    terminal.say("save", "Owls", "They hunt.", "--project", "birds")
    created(terminal)

    assert looked(postgresql, newer) == [(" SELECT said::json ->> place ",)]
    assert looked(postgresql, "SELECT version FROM agentops.control") == [(2,)]
