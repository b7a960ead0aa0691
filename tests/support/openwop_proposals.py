"""What hosts do with proposals."""

from typing import Any

import httpx

from .openwop_hosts import Host, Json, ok

PACK: Json = {"version": "1.0.0", "name": "triage", "steps": [{"b": 1, "a": None}, 2.50, True]}
PACK_TEXT = '{"version":"1.0.0","name":"triage","steps":[{"b":1,"a":null},2.5,true]}'
COMPLETE: dict[str, Json] = {
    "agent-pack": {"name": "triage", "version": "1"},
    "workflow-chain-pack": {"name": "digest", "version": "1"},
    "prompt-template": {"templateId": "sum-up", "version": "1", "text": "Sum up {{week}}."},
    "automation": {"workflowId": "harvest"},
}
NO_PROPOSAL = f"prop_{'0' * 32}"
CONFLICT = (409, "proposal_state_conflict")


def handed_in(host: Host, artifact: object = PACK, **fields: object) -> httpx.Response:
    """The answer to a new proposal."""
    body: Json = {"kind": "agent-pack", "artifact": artifact, "provenance": {"sourceRunIds": []}}
    return host.ask("POST", "/proposals", body | fields)


def proposed(host: Host, artifact: object = PACK, **fields: object) -> Json:
    """A new proposal."""
    made: Json = ok(handed_in(host, artifact, **fields), 201)
    return made


def got(host: Host, id_: str) -> Json:
    found: Json = ok(host.ask("GET", f"/proposals/{id_}"))
    return found


def listed(host: Host, **query: object) -> list[Json]:
    found: list[Json] = ok(host.ask("GET", "/proposals", params=query))["proposals"]
    return found


def revised(host: Host, id_: str, **fields: object) -> httpx.Response:
    return host.ask("PATCH", f"/proposals/{id_}", fields)


def moved(host: Host, id_: str, move: str, **options: Any) -> httpx.Response:
    """The answer to a move: `apply`, `reject`, or `archive`."""
    if move == "archive":
        return host.ask("DELETE", f"/proposals/{id_}", **options)
    return host.ask("POST", f"/proposals/{id_}/{move}", {}, **options)


def applied(host: Host, id_: str) -> str:
    """What is installed of a proposal that is applied."""
    done = ok(moved(host, id_, "apply"))
    assert done.keys() == {"installedArtifactRef"}
    ref: str = done["installedArtifactRef"]
    return ref


def artifacts(host: Host, **query: object) -> list[Json]:
    found: list[Json] = ok(host.ask("GET", "/artifacts", params=query))["artifacts"]
    return found


def artifact(host: Host, ref: str) -> httpx.Response:
    return host.ask("GET", f"/artifacts/{ref}")


def told_of(host: Host, type_: str) -> list[Json]:
    """The payloads of the events of a type, in order."""
    events = ok(host.ask("GET", "/events", params={"type": type_, "limit": 1000}))["events"]
    return [event["payload"] for event in events]
