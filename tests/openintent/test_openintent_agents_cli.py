"""`agents` at the terminal, on the file that a service has open."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentops_memory.memory.access import DEFAULT_TENANT

from ..support.archives import at, backed_up
from ..support.callers import audit, calling, key_file, made_key
from ..support.engines import is_postgresql, rows
from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.openintent_agents import MEMORY, Agent, ok, refused
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving

OWN = ("agent_spaces", "agent_memories", "agent_events", "agents")


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Service]:
    """A service in which two agents remember something, and share a namespace."""
    with serving(tmp_path / "memory.db", MEMORY_EPISODIC_CAPACITY="3") as service:
        ada, bob = Agent(service.http), Agent(service.http, "bob")
        ada.make(key="quince", value={"colour": "saffron"})
        ada.make(key="plan", value={"step": "bletting"}, memory_type="working")
        ada.permit("style", "read", bob="write")
        bob.make(key="tabs", namespace="style", memory_type="semantic", agent_id=None)
        ada.make(key="width", namespace="style", memory_type="semantic", value={"of": "lines"})
        bob.make(key="pear")
        yield service


@requirement("OI-90")
def test_agents_are_listed_with_what_they_have(team: Service) -> None:
    team.clock.advance(minutes=1)
    Agent(team.http).make(key="medlar")
    _expire(team)
    at(team.path).say("agents", "set", "carol", "--episodic-capacity", "7")

    listed = at(team.path).json("agents", "list")

    assert [list(it.values()) for it in listed] == [
        ["ada", 1, 2, 57, None, "2030-01-01T12:01:00Z"],
        ["bob", 0, 1, 18, None, "2030-01-01T12:00:00Z"],
        ["carol", 0, 0, 0, 7, None],
    ]
    assert at(team.path).say("agents", "list").splitlines()[3].split() == [
        "carol",
        "0",
        "0",
        "0",
        "7",
    ]


def _expire(service: Service) -> None:
    """Let ada have an entry that has expired for the commands, whose clock is the machine's."""
    now, service.clock.now = service.clock.now, datetime(2020, 1, 1, tzinfo=UTC)
    Agent(service.http).make(key="gone", ttl="duration:PT1S")
    service.clock.now = now


@requirement("OI-44")
def test_an_agents_own_capacity_holds_from_its_next_entry_on(team: Service) -> None:
    ada, bob = Agent(team.http), Agent(team.http, "bob")

    told = at(team.path).say("agents", "set", "ada", "--episodic-capacity", "2")

    assert told == "ada may hold 2 episodic entries.\n"
    assert ada.summary()["episodic"]["capacity"] == 2
    assert bob.summary()["episodic"]["capacity"] == 3
    for agent in (ada, bob):
        agent.make(key="fig")
        agent.make(key="plum")
    assert ada.found(memory_type="episodic") == ["plum", "fig"]
    assert bob.found(memory_type="episodic") == ["plum", "fig", "pear"]
    at(team.path).say("agents", "set", "ada", "--episodic-capacity", "1")
    ada.make(key="cherry")
    assert ada.found(memory_type="episodic") == ["cherry"]
    told = at(team.path).say("agents", "set", "ada", "--episodic-capacity", "default")
    assert told == "ada may hold as many episodic entries as the service's setting says.\n"
    ada.make(key="sloe")
    assert ada.found(memory_type="episodic") == ["sloe", "cherry"]
    lines = [it for it in audit(team.path) if it["action"] == "agent.set"]
    assert [it["episodic_capacity"] for it in lines] == [2, 1, None]
    assert {(it["agent"], it["by"]["uid"]) for it in lines} == {("ada", os.getuid())}  # type: ignore[index]


@pytest.mark.slow
@requirement("OI-90")
def test_an_export_has_what_get_shows_the_newest_last(team: Service, tmp_path: Path) -> None:
    ada, file = Agent(team.http), tmp_path / "ada.jsonl"
    ada.make(key="größe", value={"a\0": 2**60}, tags=["x"], scope={"task_id": "t1"})
    _expire(team)

    written = at(team.path).say("agents", "export", "ada", "--to", str(file))

    lines = file.read_bytes().splitlines()
    shown = [ada.ask("GET", f"{MEMORY}/{json.loads(line)['id']}").content for line in lines]
    assert (written, lines) == ("", shown)
    assert [json.loads(line)["key"] for line in lines] == ["quince", "plan", "größe"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert at(team.path).say("agents", "export", "ada", "--to", "-").encode().splitlines() == lines
    file.write_text("as it was")
    assert at(team.path).run("agents", "export", "eve", "--to", str(file)).exit_code == 1
    assert file.read_text() == "as it was"


@pytest.mark.slow
@requirement("OI-90")
def test_an_erasure_takes_all_that_is_an_agents_own_to_the_last_byte(team: Service) -> None:
    bob = Agent(team.http, "bob")
    before = bob.query(), bob.events()
    at(team.path).say("agents", "set", "ada", "--episodic-capacity", "2")

    would = at(team.path).json("agents", "erase", "ada", "--dry-run")
    assert at(team.path).json("agents", "list")[0]["agent"] == "ada"
    done = at(team.path).json("agents", "erase", "ada", "--yes")

    counts = {"agent": "ada", "working": 1, "episodic": 1, "bytes": 39, "events": 3, "keys": []}
    assert would == {**counts, "dry_run": True}
    assert (done.pop("bytes_gone_at") is None) is is_postgresql()  # where it cannot be told
    assert done.pop("copies_not_reached")
    assert done == {**counts, "dry_run": False}
    assert remains(team.path.parent, "quince", "saffron", "bletting") == set()
    names = {"agents": "name"}
    for table in OWN:
        of = f"SELECT count(*) FROM {table} WHERE {names.get(table, 'agent')} = 'ada'"
        assert rows(team.path, of) == [(0,)], table
    assert rows(team.path, "SELECT count(*) FROM spaces WHERE kind = 'working'") == [(0,)]
    assert_index_is_whole(team.path)
    assert (bob.query(), bob.events()) == before
    assert bob.found(namespace="style") == ["width", "tabs"]
    line = audit(team.path)[-1]
    assert (line["action"], line["agent"], line["keys"]) == ("agent.erased", "ada", [])
    assert [line[name] for name in ("working", "episodic", "events")] == [1, 1, 3]
    assert refused(Agent(team.http).post(agent_id="bob")) == (403, "ACCESS_DENIED")
    Agent(team.http).make(key="quince")


@requirement("OI-90")
def test_an_erasure_revokes_the_keys_that_speak_for_the_agent_alone(path: Path) -> None:
    own, shared = made_key(path, agents=("ada",)), made_key(path, agents=("ada", "bob"))
    wide, foreign = made_key(path, agents=("ad*",)), made_key(path, agents=("bob",))
    with serving(path) as service, calling(service, own) as http:
        for key in range(2):
            Agent(http).make(key=str(key))
        told = at(path).say("agents", "erase", "ada", "--yes")
        first, _, last = told.partition("\n")

        assert first == (
            "Erased ada: 0 working entries, 2 episodic entries (36 bytes), 2 events, "
            "1 key (admin of default)."
        )
        gone = "The rows are gone." if is_postgresql() else "The bytes have left the file at "
        assert last.startswith(gone)
        assert refused(Agent(http).post())[0] == 401
        for token in (shared, wide):
            with calling(service, token) as client:
                assert Agent(client).found() == []
        with calling(service, foreign) as client:
            ok(Agent(client, "bob").post(), 201)
        actions = [it["action"] for it in audit(path)]
        assert actions[4:] == ["keys.revoked", "agent.erased"]
        assert len(key_file(path).ring().working(DEFAULT_TENANT)) == 3


@requirement("OI-90")
def test_an_agent_with_nothing_but_a_key_can_be_erased(team: Service) -> None:
    made_key(team.path, agents=("eve",))

    assert len(at(team.path).json("agents", "erase", "eve", "--yes")["keys"]) == 1
    assert at(team.path).json("agents", "list")[0]["agent"] == "ada"


@pytest.mark.slow
@requirement("OI-90")
@for_each(
    "arguments, code, told",
    [
        (("erase", "nobody", "--yes"), 1, "agentops-memory: No such agent.\n"),
        (("erase", "nobody", "--dry-run"), 1, "agentops-memory: No such agent.\n"),
        (("export", "nobody", "--to", "-"), 1, "agentops-memory: No such agent.\n"),
        (("erase", "ada"), 2, "add --yes"),
        (("erase", "a/b", "--yes"), 1, "visible ASCII"),
        (("export", "ada", "--to", ""), 2, "--to needs a name."),
        (("set", "ada", "--episodic-capacity", "0"), 1, "capacity must be 1 to 100,000"),
        (("set", "ada", "--episodic-capacity", "100001"), 1, "capacity must be 1 to 100,000"),
        (("set", "ada", "--episodic-capacity", "-1"), 2, "'-1' is not a number"),
        (("set", "ada", "--episodic-capacity", "many"), 2, "'many' is not a number"),
        (("set", "ada"), 2, "--episodic-capacity"),
        (("list", "--tenant", "nobody"), 1, "There is no tenant nobody"),
    ],
)
def test_what_cannot_be_done_to_an_agent_is_a_sentence(
    team: Service, arguments: tuple[str, ...], code: int, told: str
) -> None:
    before = rows(team.path, "SELECT count(*) FROM agent_memories")

    done = at(team.path).run("agents", *arguments)

    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr
    assert rows(team.path, "SELECT count(*) FROM agent_memories") == before
    assert "agent." not in "".join(str(it["action"]) for it in audit(team.path))


def test_what_is_exported_is_no_file_of_the_service(team: Service) -> None:
    done = at(team.path).run("agents", "export", "ada", "--to", str(team.path))

    assert (done.exit_code, done.stdout) == (1, "")
    assert "one of the service's own files" in done.stderr


@pytest.mark.sqlite_files
def test_a_restore_tells_of_entries_that_were_erased_since(team: Service, tmp_path: Path) -> None:
    archive = backed_up(team.path, tmp_path / "all.zip")
    with closing(sqlite3.connect(team.path)) as database, database:  # whose bytes are there still
        database.execute(
            """INSERT INTO erasures (id, kind, observations, revisions, sessions, erased_at)
               VALUES ('0188a2a2-0000-7000-8000-000000000004', 'agent', 0, 0, 0, 1)"""
        )

    done = at(team.path).run("restore", archive, "--dry-run")

    told = [line for line in done.stdout.splitlines() if line.startswith("Erased after")]
    assert told, done.stderr
    for line in told:
        assert "archive: agent entries. To erase again: DELETE the entries again, or" in line
        assert line.endswith("agentops-memory agents erase AGENT.")
