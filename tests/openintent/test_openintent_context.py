"""Agents' memory in the context of a project: what joins, by whose viewer."""

from pathlib import Path
from typing import Any

import pytest

from ..support.openintent_agents import Agent, Json, Team, ok, team
from ..support.requirements import requirement
from ..support.service import Service, serving

__all__ = ["team"]


def context(asked: Agent, /, **parameters: str | int) -> list[Json]:
    every = {"project": "demo"} | {name: str(it) for name, it in parameters.items()}
    told: Any = ok(asked.http.get("/context", params=every))
    memories: list[Json] = told["recent_observations"]
    return memories


def titles(asked: Agent, /, **parameters: str | int) -> list[str]:
    return [it["title"] for it in context(asked, **parameters)]


@requirement("OI-70")
def test_what_an_agent_remembers_joins_the_project(service: Service) -> None:
    ada = Agent(service.http)
    service.save("a heron in the reeds")
    ada.make(key="seen", value={"bird": "a heron"})
    ada.make(key="rule", memory_type="semantic", namespace="team", value={"rule": "count herons"})
    ada.make(key="now", memory_type="working", value={"bird": "heron"})

    assert titles(ada, query="heron") == ["a heron in the reeds"]
    found = context(ada, query="heron", episodic="true", namespaces="team", agent="ada")
    assert [(it["type"], it["title"], it["content"]) for it in found] == [
        ("discovery", "a heron in the reeds", "a heron in the reeds"),
        ("episodic", "notes/seen", '{"bird":"a heron"}'),
        ("semantic", "team/rule", '{"rule":"count herons"}'),
    ]
    assert titles(ada, query="heron", episodic="true", agent="bob") == ["a heron in the reeds"]
    assert titles(ada, query="zzz", namespaces="team", agent="bob", limit=9) == [
        "a heron in the reeds", "team/rule",
    ]  # fmt: skip
    entry = ada.query(key="rule")["entries"][0]
    why = context(ada, query="heron", namespaces="team", agent="ada", explain="true")[-1]["explain"]
    assert (why["entry_id"], why["namespace"]) == (entry["id"], "team")


@requirement("OI-70", "OI-46")
def test_what_an_agent_is_given_of_its_own_is_access(path: Path) -> None:
    with serving(path, MEMORY_EPISODIC_CAPACITY="2") as service:
        ada = Agent(service.http)
        for key, bird in {"a": "heron", "b": "stork"}.items():
            ada.make(key=key, value={"bird": bird})
            service.clock.advance(seconds=1)
        assert titles(ada, query="heron", episodic="true", agent="ada", limit=1) == ["notes/a"]
        ada.make(key="c")
        assert ada.found() == ["c", "a"]


@pytest.mark.slow
@requirement("OI-70", "OI-53", "OI-11")
def test_rights_hold_in_a_context(team: Team) -> None:
    team.root.permit("vault", "none", bob="read")
    team.root.make(memory_type="semantic", namespace="vault", value={"bird": "heron"})
    team.ada.make(value={"bird": "heron"})
    speakers = {
        "ada": team.ada, "two": team.agent("bob", speaks=("bob", "cyn")),
        "none": team.agent("eve", speaks=()),
    }  # fmt: skip

    def asked(who: str, **parameters: str) -> tuple[int, str]:
        answer = speakers[who].http.get("/context", params={"query": "heron", **parameters})
        return answer.status_code, answer.text

    hidden = asked("ada", namespaces="vault")
    assert hidden == asked("ada", namespaces="nowhere")
    assert hidden[0] == 404
    assert "vault/apple" in asked("two", namespaces="vault", agent="bob")[1]
    assert asked("two", namespaces="vault", agent="cyn")[0] == 404
    assert asked("two", namespaces="vault")[0] == 400
    assert asked("two", episodic="true", agent="ada")[0] == 403
    assert asked("none", episodic="true", agent="eve")[0] == 403
    assert asked("none")[0] == 200
    assert "notes/apple" in asked("ada", episodic="true")[1]
    assert asked("ada", episodic="perhaps")[0] == 400
    assert asked("ada", namespaces=",".join("abcdefghi"))[0] == 400
