"""Commands on a database of PostgreSQL: they work as on files, or say what it has itself."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentops_memory.engine.engine import Scrubbed
from agentops_memory.memory.access import OPERATOR
from agentops_memory.postgresql import tenants, tenants as examination
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.postgresql.transaction import number_of

from ..support import postgres
from ..support.engine import impatient
from ..support.pods import looked
from ..support.process import until
from ..support.samples import for_each
from ..support.service import Clock, Service, serving
from ..support.terminal import Terminal

TABLES = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname LIKE 't\\_%'"


@pytest.fixture
def terminal(postgresql: str) -> Terminal:
    return Terminal({"MEMORY_DATABASE_URL": postgresql})


@pytest.fixture
def service(postgresql: str, tmp_path: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        yield stack.enter_context(serving(tmp_path / "memory.db", MEMORY_DATABASE_URL=postgresql))


@pytest.mark.slow
def test_an_export_goes_into_a_file_and_back_into_another_tenant(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.say("save", "Owls", "They hunt.", "--project", "birds")
    export = tmp_path / "export.json"

    terminal.say("export", export)
    terminal.say("tenants", "create", "acme")
    imported = terminal.say("import", export, "--tenant", "acme")
    terminal.say("export", tmp_path / "acme.json", "--tenant", "acme")

    assert imported == "Imported 1 observation and 1 session.\n"
    (ours, theirs) = (json.loads(it.read_text())["observations"][0] for it in (
        export, tmp_path / "acme.json"
    ))  # fmt: skip
    assert ours["content"] == theirs["content"] == "They hunt."


@pytest.mark.slow
def test_an_erasure_says_where_bytes_are_until_tables_are_written_anew(postgresql: str) -> None:
    terminal = Terminal({"MEMORY_DATABASE_URL": postgresql, "MEMORY_DATABASE_RETENTION": "14d"})
    for project in ("owls", "herons", "cranes"):
        terminal.say("save", project, f"About {project}.", "--project", project)
    key = terminal.json("keys", "create", "--name", "ci", "--role", "writer", "--agent", "coder")
    terminal.say("agents", "set", "coder", "--episodic-capacity", 3)
    terminal.say("projects", "rename", "owls", "birds")
    terminal.say("projects", "merge", "herons", "birds", "--yes")
    listed = [terminal.json(kind, "list") for kind in ("projects", "agents")]
    where = (
        "The rows are gone. Their bytes stay in pages of the database until they are "
        "overwritten (`agentops-memory tenants rewrite default` does that at once), and "
        "for 14 days in its write-ahead log, replicas and backups."
    )

    assert where in terminal.say("projects", "erase", "cranes", "--yes")
    birds = terminal.json("projects", "erase", "birds", "--yes")
    coder = terminal.json("agents", "erase", "coder", "--yes")

    counts = {it["project"]: it["observations"] for it in listed[0]}
    assert counts == {"birds": 2, "cranes": 1}
    assert [(it["agent"], it["episodic_capacity"]) for it in listed[1]] == [("coder", 3)]
    assert (birds["observations"], birds["bytes_gone_at"]) == (2, None)
    assert "its write-ahead log" in birds["copies_not_reached"]
    assert (coder["keys"], coder["bytes_gone_at"]) == ([{"id": key["id"], "name": "ci"}], None)
    assert [terminal.json(kind, "list") for kind in ("projects", "agents")] == [[], []]
    files = "SELECT relname, relfilenode FROM pg_class WHERE relname = 'memories'"
    before = looked(postgresql, files)

    told = terminal.say("tenants", "rewrite", "default")

    assert told == "No erased data is left in the schema t_default.\n"
    assert looked(postgresql, files) != before
    assert looked(postgresql, "SELECT pg_relation_size('t_default.memories')") == [(0,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("held", "told"),
    [
        ("SELECT count(*) FROM agentops.keys", "A transaction may still see erased data"),
        (
            f"SELECT pg_advisory_xact_lock_shared({number_of('t_default')})",
            "Another writer has held",
        ),
    ],
)
def test_tables_are_not_written_anew_while_somebody_sees_or_erases(
    held: str, told: str, terminal: Terminal, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "MAX_WAIT", timedelta(milliseconds=1))
    terminal.say("save", "Owls", "They hunt.", "--project", "birds")
    at = "SELECT rewritten_at IS NULL FROM agentops.tenants"

    with psycopg.connect(postgresql) as stranger:
        stranger.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        stranger.execute(held.encode())
        terminal.say("save", "Herons", "They wade.", "--project", "birds")
        done = terminal.run("tenants", "rewrite", "default")

    assert (done.exit_code, told in done.stderr) == (1, True), done.stderr
    assert looked(postgresql, at) == [(True,)]
    monkeypatch.undo()
    terminal.say("tenants", "rewrite", "default")
    assert looked(postgresql, at) == [(False,)]


@pytest.mark.heavy
def test_a_receipt_says_that_bytes_are_gone_when_tables_and_copies_have_them_no_more(
    terminal: Terminal, postgresql: str, path: Path
) -> None:
    clock = Clock(datetime.now(UTC))  # as the command's
    with serving(
        path, clock=clock, MEMORY_DATABASE_URL=postgresql,
        MEMORY_DATABASE_RETENTION="1d",
    ) as service:  # fmt: skip
        first = erased(service, "one")
        terminal.say("tenants", "rewrite", "default")
        clock.advance(hours=23)
        looked(postgresql, OF_AN_AGENT)
        later = erased(service, "two")  # each has the service look at all receipts
        until(lambda: not looked(postgresql, OF_AGENTS))  # of those nobody asks: it has looked
        clock.advance(hours=2)
        erased(service, "three")

        until(lambda: "bytes_gone_at" in receipt(service, first))
        gone_at = datetime.fromisoformat(receipt(service, first)["bytes_gone_at"])
        assert gone_at == clock.now.replace(microsecond=0)
        assert "bytes_gone_at" not in receipt(service, later)


def test_a_look_at_receipts_waits_for_nobody_if_none_can_be_settled(
    service: Service, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, timedelta(milliseconds=50))
    erased(service, "one")

    async def looked() -> Scrubbed:
        async with PostgresEngine.opened(postgresql, clock=Clock()) as engine:
            return await engine.maintenance.scrub(OPERATOR)

    with psycopg.connect(postgresql) as writer:
        writer.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("t_default"),))

        assert asyncio.run(looked()) == Scrubbed()


OF_AGENTS = "SELECT id FROM t_default.erasures WHERE kind = 'agent'"
OF_AN_AGENT = """
    INSERT INTO t_default.erasures (id, kind, observations, revisions, sessions, erased_at)
    VALUES ('00000000-0000-7000-8000-000000000000', 'agent', 1, 0, 0, 0)"""


def erased(service: Service, said: str) -> str:
    """The erasure of a new observation, beyond recall."""
    answer = service.http.delete(f"/observations/{service.save(said)['id']}?hard=true")
    return str(answer.headers["X-Erasure-Id"])


def receipt(service: Service, erasure: str) -> dict[str, Any]:
    told: dict[str, Any] = service.http.get(f"/erasures/{erasure}").json()
    return told


@pytest.mark.slow
def test_a_tenant_is_a_schema_and_its_erasure_drops_it(
    terminal: Terminal, service: Service, postgresql: str
) -> None:
    told = terminal.say("tenants", "create", "acme")
    key = terminal.json("keys", "create", "--name", "a", "--role", "admin", "--tenant", "acme")
    terminal.say("save", "Owls", "They hunt.", "--project", "birds", "--tenant", "acme")

    assert told == "The tenant acme has its database: the schema t_acme.\n"
    again = terminal.run("tenants", "create", "acme")
    assert "already has a database: the schema t_acme." in again.output
    default, acme = terminal.json("tenants", "list")
    assert (default["tenant"], default["observations"]) == ("default", 0)
    assert (acme["tenant"], acme["observations"], acme["sessions"]) == ("acme", 1, 1)
    assert acme["keys"] == [{"id": key["id"], "name": "a"}]
    assert acme["bytes"] > 0

    erased = terminal.json("tenants", "erase", "acme", "--yes")

    assert (erased["observations"], erased["files"]) == (1, ["t_acme"])
    assert {schema for schema, _ in looked(postgresql, TABLES)} == {"t_default"}
    assert looked(postgresql, "SELECT tenant FROM agentops.tenants") == [("default",)]
    headers = {"X-API-Key": key["key"]}
    assert service.http.get("/stats", headers=headers).status_code == 401
    assert {schema for schema, _ in looked(postgresql, TABLES)} == {"t_default"}


@pytest.mark.slow
def test_an_erasure_that_meets_others_is_to_be_tried_again(
    terminal: Terminal, postgresql: str
) -> None:
    terminal.say("tenants", "create", "acme")
    postgres.ordered(
        postgresql,
        """CREATE FUNCTION public.collide() RETURNS event_trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE deadlock_detected
              USING DETAIL = 'Process 1 waits for relation 2 of database 3.'; END $$""",
        """CREATE EVENT TRIGGER colliding ON ddl_command_start WHEN TAG IN ('DROP SCHEMA')
               EXECUTE FUNCTION public.collide()""",
    )

    done = terminal.run("tenants", "erase", "acme", "--yes")

    assert (done.exit_code, "were in conflict; try again." in done.stderr) == (1, True)
    assert ("acme",) in looked(postgresql, "SELECT tenant FROM agentops.tenants")


BACKUPS = r".*pg_dump, or base backups with point-in-time recovery\."
NAMED = r".*--db selects a file, but MEMORY_DATABASE_URL selects PostgreSQL"


@for_each(
    "command, said",
    [
        *((it, BACKUPS) for it in ("backup --to archive", "restore archive", "migrate")),
        *((f"{it} --db file", NAMED) for it in ("stats", "projects list", "serve", "doctor")),
        ("serve", "agentops-memory: MEMORY_BACKUP_DIR: this setting is for files;"),
        ("tenants erase default --yes", ".*The default tenant is the service's own database."),
    ],
)
def test_what_is_of_files_is_refused_and_names_what_a_database_has(
    command: str, said: str, postgresql: str, tmp_path: Path
) -> None:
    backups = {"MEMORY_BACKUP_DIR": str(tmp_path)} if command == "serve" else {}
    done = Terminal({"MEMORY_DATABASE_URL": postgresql, **backups}).run(*command.split())

    assert done.exit_code == 1
    assert re.match(said, done.output.replace("\n", " ")), done.output


@pytest.mark.slow
def test_nothing_is_made_where_there_is_nothing_to_see(blank_database: str) -> None:
    terminal = Terminal({"MEMORY_DATABASE_URL": blank_database})

    assert terminal.json("keys", "list") == []
    assert terminal.json("tenants", "list") == []
    assert "There is no database: the schema " in terminal.run("stats").output
    terminal.run("doctor")

    schemas = "SELECT 1 FROM pg_namespace WHERE nspname = 'agentops'"
    assert looked(blank_database, schemas) == []
    assert (
        "Creating the schema t_default."
        in terminal.run("save", "Owls", "They hunt.", "--project", "birds").output
    )


def found(terminal: Terminal) -> dict[str, tuple[str, str]]:
    """What the doctor says of each thing."""
    findings = json.loads(terminal.run("doctor", "--json").stdout)["findings"]
    return {it["code"]: (it["status"], it["sentence"]) for it in findings}


@pytest.mark.slow
def test_the_doctor_tells_what_is_wrong_with_a_database(
    terminal: Terminal, postgresql: str
) -> None:
    terminal.say("save", "Owls", "They hunt.", "--project", "birds")
    seen = found(terminal)
    well = {code for code, (status, _) in seen.items() if status == "ok"}
    assert {"database", "transactions", "format", "index", "size", "keys"} <= well
    assert not {"files", "served"} & seen.keys()

    postgres.ordered(
        postgresql,
        "UPDATE t_default.areas SET memories = 7 WHERE area = 1",
        "ALTER TABLE t_default.postings SET (autovacuum_enabled = off)",
    )
    seen = found(terminal)
    assert seen["index"] == ("warning", "It differs from the memories in 6 rows.")
    assert seen["autovacuum"][0] == "warning"
    assert seen["durability"][0] == "warning"
    terminal.say("index", "--rebuild")
    assert found(terminal)["index"][0] == "ok"

    name = postgresql.partition("?")[0].rpartition("/")[2]
    nowhere = Terminal({"MEMORY_DATABASE_URL": postgresql.replace(name, "nowhere")})
    assert found(nowhere)["database"][0] == "failed"
    assert "The database refuses the connection" in found(nowhere)["database"][1]
    assert nowhere.run("doctor").exit_code == 1


@for_each(
    "waits, expected",
    [
        ("off", ("warning", "so a crash can lose acknowledged writes: synchronous_commit.")),
        ("local", ("warning", "for the disk of a standby: synchronous_commit is local.")),
        ("remote_write", ("warning", "for the disk of a standby: synchronous_commit is remote_w")),
        ("on", ("ok", "A commit is on disk, and on a standby, before it is acknowledged.")),
    ],
)
def test_the_doctor_tells_what_a_commit_waits_for(waits: str, expected: tuple[str, str]) -> None:
    settings = dict.fromkeys(examination.UNSAFE, "on") | {"synchronous_standby_names": "one"}

    (finding,) = examination.check_durability(settings | {"synchronous_commit": waits})

    assert (finding.status, expected[1] in finding.sentence) == (expected[0], True)


def test_readiness_warns_while_no_standby_is_named(service: Service) -> None:
    answer = service.http.get("/health/ready")

    assert answer.status_code == 200
    checks = answer.json()["checks"]
    assert checks["standby"]["status"] == "warning"
    assert checks["database"] == {"status": "ok"}
    assert {"disk", "wal"} & checks.keys() == set()
