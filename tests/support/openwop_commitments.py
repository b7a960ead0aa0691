"""What tests of commitments share: arming, looking, and the events that tell of firings."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from .engines import rows
from .openwop_hosts import Host, Json, ok
from .service import Service

FIELDS = {"id", "memoryRef", "memoryId", "condition", "state", "createdAt"}
TOLD = {"commitmentId", "memoryRef", "memoryId", "condition"}  # of a firing, and no more


@dataclass(frozen=True, slots=True)
class Intents:
    """The commitments of a host."""

    host: Host

    def post(self, **fields: object) -> httpx.Response:
        return self.host.ask("POST", "/commitments", {"memoryRef": self.host.ref, **fields})

    def at(self, memory: str, due: datetime | str) -> Json:
        """A time that was armed."""
        said = due if isinstance(due, str) else due.isoformat()
        armed: Json = ok(self.post(memoryId=memory, condition="time", dueAt=said), 201)
        return armed

    def on(self, memory: str, tag: str) -> Json:
        """A tag that is waited for."""
        armed: Json = ok(self.post(memoryId=memory, condition="predicate", tag=tag), 201)
        return armed

    def listed(self, **query: object) -> list[Json]:
        return list(self.page(**query)["commitments"])

    def page(self, **query: Any) -> Json:
        answer: Json = ok(self.host.ask("GET", "/commitments", params=query))
        assert answer.keys() - {"next"} == {"commitments"}
        for each in answer["commitments"]:
            shown = {"time": "dueAt", "predicate": "tag"}[each["condition"]]
            fired = {"firedAt"} if each["state"] == "fired" else set()
            assert each.keys() == FIELDS | {shown} | fired
        return answer

    def get(self, commitment: str) -> httpx.Response:
        return self.host.ask("GET", f"/commitments/{commitment}")

    def cancel(self, commitment: str) -> httpx.Response:
        return self.host.ask("DELETE", f"/commitments/{commitment}")

    def states(self) -> list[str]:
        return [each["state"] for each in self.listed()]

    def fired(self) -> list[Json]:
        """What the events of firings tell, each of them in a run of its own."""
        told = self.host.ask("GET", "/events", params={"type": "commitment.fired", "limit": 1000})
        events = ok(told)["events"]
        for event in events:
            assert event["payload"].keys() == TOLD
            run = ok(self.host.ask("GET", f"/runs/{event['runId']}"))
            assert (run["kind"], run["status"]) == ("pass", "completed")
            log = [it["type"] for it in self.host.told(event["runId"])]
            assert log == ["run.started", "commitment.fired", "run.completed"]
        assert len({event["runId"] for event in events}) == len(events)
        return [event["payload"] for event in events]


def firing(of: Json) -> Json:
    """What an event tells of a commitment."""
    named = {name: of[name] for name in ("memoryRef", "memoryId", "condition")}
    return {"commitmentId": of["id"], **named}


def soon(service: Service, **by: float) -> datetime:
    return service.clock.now + timedelta(**by)


def stored(path: Path) -> list[str]:
    """The states that the rows of a file have."""
    return [state for (state,) in rows(path, "SELECT state FROM commitments ORDER BY id")]
