"""Confidential values: encrypted where they lie, given to who may read them, and to no prompt."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ..support.archives import at
from ..support.engines import rows
from ..support.erasing import remains
from ..support.openintent_agents import BATCH, MEMORY, Agent, Json, ok, refused, time_passes
from ..support.process import served, until
from ..support.requirements import requirement
from ..support.service import Service, serving
from ..telemetry.test_tracing import traced
from .test_openintent_context import context

WORD = "quokka"  # which the index keeps as it is, and no stem of it
VALUE: Json = {"animal": WORD}
KEYED = "/api/v1/agents/ada/memory/notes/apple"
TIERS = {"working": "confidential", "episodic": "restricted", "semantic": "confidential"}


def confidential(agent: Agent, **fields: object) -> Json:
    return agent.make(**{"sensitivity": "confidential", "value": VALUE} | fields)


def seals(path: Path) -> list[tuple[object, ...]]:
    return rows(path, "SELECT memory_id, key, nonce, sealed FROM seals ORDER BY memory_id")


@pytest.mark.slow
@pytest.mark.representative(2)
@requirement("OI-85")
@pytest.mark.parametrize("tier", TIERS)
def test_whatever_writes_a_confidential_value_leaves_it_in_no_file(
    tmp_path: Path, tier: str
) -> None:
    with serving(tmp_path / "memory.db") as service:
        ada, marked = Agent(service.http), {"memory_type": tier, "sensitivity": TIERS[tier]}
        once = {"Idempotency-Key": "one"}
        body = ada.body(value=VALUE, tags=["craft"], **marked)
        made = ok(ada.ask("POST", MEMORY, body, headers=once), 201)
        assert ok(ada.ask("POST", MEMORY, body, headers=once), 201) == made
        assert made["value"] == VALUE
        changed = ok(ada.patch(made, value=VALUE | {"n": 1}))
        more = [ada.body(key="pear", value=VALUE, **marked)]
        again = ada.body(value=VALUE | {"n": 2}, version=2, **marked)
        ok(ada.ask("POST", BATCH, {"entries": [*more, again]}), 200)
        stale = ada.patch(changed, value=VALUE)
        if tier == "episodic":
            ok(ada.ask("PUT", KEYED, {"value": VALUE | {"n": 2}}))
            assert ok(ada.ask("GET", KEYED))["value"] == VALUE | {"n": 2}

        assert ok(ada.get(made))["value"] == VALUE | {"n": 2}
        assert (refused(stale)[0], stale.json()["current_value"]) == (409, VALUE | {"n": 2})
        listed = ada.query(tags="craft", namespace="no*")["entries"]
        assert [it["value"] for it in listed] == [VALUE | {"n": 2}]
        assert _found(ada, WORD) == []
        assert _found(ada, "craft") == ([] if tier == "working" else [VALUE | {"n": 2}])
        assert remains(tmp_path, WORD) == set()
    assert remains(tmp_path, WORD) == set()
    assert len(seals(service.path)) == 2


@pytest.mark.slow
@pytest.mark.sqlite_files
@requirement("OI-85")
def test_what_is_gone_takes_its_sealed_bytes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path, MEMORY_EPISODIC_CAPACITY="1", MEMORY_SWEEP_EVERY="50ms") as service:
        ada = Agent(service.http)

        def gone(deed: Callable[[], object]) -> None:
            ((_, _, *parts),) = seals(path)
            deed()
            until(lambda: not any(
                bytes(part) in file.read_bytes()  # type: ignore[call-overload]
                for part in parts for file in tmp_path.glob("memory.db*")
            ))  # fmt: skip

        deleted = confidential(ada)
        gone(lambda: ok(ada.delete(deleted)))
        confidential(ada)
        gone(lambda: ada.make(key="evicts"))
        confidential(ada, key="ends", ttl="duration:PT10S")
        gone(lambda: time_passes(service))
        confidential(ada)
        gone(lambda: at(path).say("agents", "erase", "ada", "--yes"))
        assert seals(path) == []


def _found(ada: Agent, word: str) -> list[Json]:
    """The values that a search finds."""
    found = ok(ada.ask("GET", f"{MEMORY}/search", params={"q": word}))["entries"]
    return [entry["value"] for entry in found]


@requirement("OI-71")
def test_no_prompt_is_ever_given_a_confidential_value(service: Service) -> None:
    ada = Agent(service.http)
    confidential(ada, key="wood", tags=["carving"])
    confidential(ada, key="rule", namespace="team", memory_type="semantic", sensitivity="restricted")  # fmt: skip  # noqa: E501
    ada.make(key="plain", value={"craft": "carving"})
    asked = {"episodic": "true", "namespaces": "team", "agent": "ada"}

    for explain in ({}, {"explain": "true"}):
        for query in ("carving wood rule", WORD, "quokkas"):
            given = context(ada, query=query, **asked, **explain)
            assert WORD not in repr(given)
            assert {it["title"]: it["content"] for it in given} == {
                "notes/wood": "[confidential]",
                "team/rule": "[restricted]",
                "notes/plain": '{"craft":"carving"}',
            }
    assert context(ada, query="carving", **asked)[0]["title"] in ("notes/wood", "notes/plain")


@requirement("OI-85")
def test_no_log_line_no_span_and_no_event_tells_a_confidential_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with traced(tmp_path) as (service, received):
        ada = Agent(service.http)
        entry = confidential(ada)
        ok(ada.get(entry))
        service.path.with_name("memory.db.seal").rename(tmp_path / "away")
        assert ada.get(entry).status_code == 503
        (tmp_path / "away").rename(tmp_path / "memory.db.seal")
        ok(ada.patch(entry, sensitivity=None, tags=["t"]))
        events = ada.events()
        key = (tmp_path / "memory.db.seal").read_text().split('"key": "')[1].split('"')[0]
        told = [repr(received().spans), caplog.text, repr(events)]

    assert all(told)
    assert [word for word in (WORD, key) for text in told if word in text] == []


@pytest.mark.representative(2)
@requirement("OI-85")
@pytest.mark.parametrize(
    "moved",
    [
        "UPDATE seals SET (key, nonce, sealed) = (SELECT key, nonce, sealed FROM seals LIMIT 1)",
        "UPDATE memories SET key = 'elsewhere' WHERE key = 'pear'",
        "UPDATE agent_spaces SET namespace = 'elsewhere'", "UPDATE agent_spaces SET agent = 'bob'",
        "UPDATE seals SET sealed = nonce", "UPDATE seals SET nonce = sealed",
        "UPDATE seals SET key = 'another'", "DELETE FROM seals",
    ],
)  # fmt: skip
def test_a_value_that_was_moved_or_changed_in_the_file_does_not_open(
    service: Service, moved: str
) -> None:
    ada, bob = Agent(service.http), Agent(service.http, "bob")
    confidential(ada, value={"of": "apple"})
    pear = confidential(ada, key="pear", value={"of": "pear"})

    rows(service.path, moved)

    assert refused((bob if "bob" in moved else ada).get(pear)) == (503, "UNAVAILABLE")


@pytest.mark.slow
@pytest.mark.sqlite_files
@requirement("OI-85")
def test_the_means_to_encrypt_are_loaded_with_the_first_value_that_needs_them(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "memory.db") as (program, http):
        maps, ada = Path(f"/proc/{program.pid}/maps"), Agent(http)
        ok(ada.patch(ada.make(), tags=["a"]))
        ada.query()
        assert "cryptography" not in maps.read_text()
        assert not (tmp_path / "memory.db.seal").exists()
        confidential(ada, key="pear")
        assert "cryptography" in maps.read_text()
