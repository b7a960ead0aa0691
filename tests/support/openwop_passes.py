"""What tests of passes share: their answers in shape, what their runs tell, what stays of a ref."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from .openwop_facts import PAYLOADS
from .openwop_hosts import Host, Json, ok
from .openwop_tenants import counted, provenance
from .service import Service

COMPACTED, CONSOLIDATED = "memory.compacted", "agent.memory.consolidated"
FORGOTTEN, UNDONE = "agentops-memory.memory.forgotten", "agentops-memory.pass.undone"
CHANGED, NOT_UNDOABLE = (409, "memory_changed"), (409, "pass_not_undoable")

# Of the contract's test vector: sources by day of May 2026, and the lines that are taken.
SOURCES = [
    "Checkout timed out behind the proxy. The provider needs up to 12 s.",
    "Raised proxy_read_timeout to 30 s. The provider needs up to 12 s.",
    "Customer asked about pricing tiers.\nCheckout works again!",
]
LINES = [
    "- 2026-05-01: Checkout timed out behind the proxy.",
    "- 2026-05-02: Raised proxy_read_timeout to 30 s.",
    "- 2026-05-02: The provider needs up to 12 s.",
    "- 2026-05-03: Customer asked about pricing tiers.",
    "- 2026-05-03: Checkout works again!",
]
DIGESTS = {
    1024: "4d800515d752f394afa97f8f82667fa491142e270a12fd5ee59ed5b6b45c5aab",
    120: "e74586fbd3d118e326395cde4a74fb3032339094e50550379d5469799ac4637b",
}


def corpus(service: Service, host: Host, *, tags: tuple[str, ...] = ()) -> list[Json]:
    """The sources of the test vector, put on their days; afterwards it is what it was."""
    now, made = service.clock.now, list[Json]()
    for day, text in enumerate(SOURCES, 1):
        service.clock.now = datetime(2026, 5, day, 12, tzinfo=UTC)
        made.append(host.put(text, tags=list(tags)))
    service.clock.now = now
    return made


def passed(answer: httpx.Response, type_: str = COMPACTED) -> Json:
    """The payload of the event of a pass, whose shape is checked."""
    done: Json = ok(answer)
    more = {"archiveChecksum", "created"} if "archiveChecksum" in done else set[str]()
    assert done.keys() == {"runId", "event"} | more
    assert done["event"].keys() == {"type", "payload"}
    assert done["event"]["type"] == type_
    payload: Json = done["event"]["payload"]
    is_told_in_full(type_, payload)
    return payload


def is_told_in_full(type_: str, payload: Json) -> None:
    """The payload has the keys that it must have, and none that it may not."""
    Draft202012Validator(PAYLOADS[type_]).validate(payload)


def archived(host: Host, answer: httpx.Response) -> Json:
    """The archive that a pass tells of, as a get gives it."""
    entry: Json = ok(host.get(passed(answer)["outputId"]))["entry"]
    return entry


def is_recorded(host: Host, answer: httpx.Response) -> None:
    """A pass is a run of its own, which tells of it and is over."""
    done = ok(answer)
    run = ok(host.ask("GET", f"/runs/{done['runId']}"))
    assert (run["kind"], run["status"]) == ("pass", "completed")
    told = host.told(done["runId"])
    assert [it["sequence"] for it in told] == [0, 1, 2]
    assert [it["type"] for it in told] == ["run.started", done["event"]["type"], "run.completed"]
    assert told[1]["payload"] == done["event"]["payload"]


def events(host: Host) -> list[Json]:
    """Every event of the tenant, each of which is told in full and once."""
    found, query = list[Json](), dict[str, object]({"limit": 1000})
    while (page := ok(host.ask("GET", "/events", params=query)))["events"]:
        found += page["events"]
        query["after"] = page["next"]
    assert len({it["eventId"] for it in found}) == len(found)
    for it in found:
        if not it["type"].startswith("run."):
            is_told_in_full(it["type"], it["payload"])
    return found


def of_type(host: Host, *types: str) -> list[Json]:
    """The payloads of all events of these types."""
    return [it["payload"] for it in events(host) if it["type"] in types]


def about(host: Host, memory: str) -> Json:
    """The provenance of an entry."""
    told: Json = ok(provenance(host, memory))
    return told


def ids(entries: list[Json]) -> list[str]:
    return [entry["id"] for entry in entries]


def state(host: Host) -> tuple[Any, ...]:
    """What a ref shows, what it counts, and how much is told of the tenant."""
    return host.entries(limit=500), counted(host).get(host.ref), len(events(host))


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def archive_id(ref: str, method: str, cap: int, sources: list[str], content: str) -> str:
    """The id that an archive has by what it says, and of what."""
    parts = [it.encode() for it in (ref, method, str(cap), *sources, content)]
    return "archive_" + sha256(b"".join(b"%d:%s" % (len(it), it) for it in parts)).hexdigest()[:32]


def tokens(text: str) -> int:
    return (len(text.encode()) + 3) // 4
