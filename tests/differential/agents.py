"""Agents of OpenIntent: their entries, and the intents, tasks and rights that these hang on."""

from typing import Any
from urllib.parse import urlencode

from .place import Place, part

MEMORY, NAMESPACES = "/api/v1/memory", "/api/v1/memory/namespaces"
AGENTS = ["ada", "bob", "lead"]
SPACES, KEYS = ["notes", "facts", "x/y"], ["a", "b", "c", "max_connections", "é", "数据", "k/1"]
TIERS = ["working", "episodic", "episodic", "semantic"]
SENSITIVITIES = [None, None, "public", "internal", "confidential", "restricted"]
TTLS = ["duration:PT30S", "duration:P1D", "duration:P1M2DT3H", "task_lifetime", "P1D", None]
STATES = ["pending", "ready", "claimed", "running", "blocked", "completed", "failed", "cancelled"]
NOBODY = "mem_" + "0" * 32


class Agents:
    """What is known of entries, intents, tasks, coordinators and grants."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._entries: dict[str, dict[str, Any]] = {}
        self._intents: list[str] = []
        self._tasks: dict[str, dict[str, Any]] = {}
        self._coordinators: list[str] = []
        self._grants: list[tuple[str, str]] = []
        self._seen = 0

    def begin(self) -> None:
        self.make_intent()

    def make(self) -> None:
        agent = self._place.choice(AGENTS)
        self._learn(self._ask("POST", MEMORY, self._entry(agent), agent))

    def make_many(self) -> None:
        place, agent = self._place, self._place.choice(AGENTS)
        entries = [
            self._entry(agent) | place.maybe(0.1, version=place.choice([1, 2]))
            for _ in range(place.chance.randint(0, 12))
        ]
        answer = self._ask("POST", f"{MEMORY}/batch", {"entries": entries}, agent)
        if answer.is_success:
            for it in answer.json()["entries"]:
                self._entries[it["id"]] = it

    def change(self) -> None:
        place, held = self._place, self._held()
        body = place.maybe(
            0.3, value=self._value(), tags=place.some(["x", "y"]),
            pinned=place.choice([True, False]), priority=place.choice(["low", "normal", "high"]),
            ttl=place.choice(TTLS),
            expires_at=place.choice([place.soon(), None]), sensitivity=place.choice(SENSITIVITIES),
            curated_by=place.choice(["me", None]),
        )  # fmt: skip
        match = {"If-Match": f'"{held.get("version", 1)}"'} if place.is_rare(0.9) else {}
        answer = self._ask("PATCH", f"{MEMORY}/{held['id']}", body, held.get("created_by"), match)
        self._learn(answer)

    def delete(self) -> None:
        held = self._held()
        match = {"If-Match": str(held.get("version"))} if self._place.is_rare(0.3) else {}
        self._ask("DELETE", f"{MEMORY}/{held['id']}", None, held.get("created_by"), match)

    def delete_some(self) -> None:
        self._ask("DELETE", f"{MEMORY}/batch?{self._query(key=self._place.choice(KEYS), limit=2)}")

    def read(self) -> None:
        held = self._held()
        self._learn(self._ask("GET", f"{MEMORY}/{held['id']}", None, held.get("created_by")))

    def put_by_key(self) -> None:
        place, agent = self._place, self._place.choice(AGENTS)
        path = self._own(agent, f"{part(place.choice(SPACES))}/{part(place.choice(KEYS))}")
        if place.is_rare(0.4):
            self._ask("GET", path, None, agent)
            return
        value = place.choice([self._value(), 7, "text", None, [1]])
        body = {"value": value} | place.maybe(0.2, ttl_seconds=place.choice([1, 90_000, 0]))
        self._learn(self._ask("PUT", path, body, agent))

    def find(self) -> None:
        place = self._place
        query = self._query(
            namespace=place.choice([None, *SPACES, "n*", "*"]), memory_type=place.choice([None,
            *TIERS]),
            tags=place.choice([None, None, "x", "x,y"]), tags_any=place.choice([None, None, "x,y"]),
            key=place.choice([None, None, None, *KEYS]), pinned=place.choice([None, None, "true"]),
            limit=place.choice([None, 2, 50]), offset=place.choice([None, None, 1]),
            agent_id=place.choice([None, None, *AGENTS]),
            updated_after=place.past() if place.is_rare() else None,
            **{"scope.task_id": self._task() if place.is_rare() else None},
        )  # fmt: skip
        agent = place.choice(AGENTS)
        paths = [
            f"{MEMORY}?{query}",
            self._own(place.choice(AGENTS), f"?{query}").replace("/?", "?"),
        ]
        self._ask("GET", place.choice(paths), None, agent)

    def search(self) -> None:
        place = self._place
        query = self._query(
            q=place.words.question(), namespace=place.choice([None, None, *SPACES, "*"]),
            memory_type=place.choice([None, None, *TIERS]), tags=place.choice([None, None, "x"]),
            limit=place.choice([None, 3, 100]),
        )  # fmt: skip
        self._ask("GET", f"{MEMORY}/search?{query}")

    def look_at_namespaces(self) -> None:
        place, space = self._place, part(self._place.choice(SPACES))
        if place.is_rare(0.5):
            self._ask("GET", place.choice([NAMESPACES, f"{NAMESPACES}/{space}"]))
            return
        access = ["none", "read", "write", "admin"]
        allow = [{"agent": place.choice(AGENTS), "access": place.choice(access)}]
        permissions = {"default": place.choice(["write", "write", *access]), "allow": allow}
        self._ask("PATCH", f"{NAMESPACES}/{space}", {"permissions": permissions})

    def look_at_an_agent(self) -> None:
        agent = self._place.choice(AGENTS)
        path = self._place.choice(["memory/summary", "events?limit=5", self._events()])
        self._follow(self._ask("GET", f"/api/v1/agents/{agent}/{path}", None, agent))

    def make_intent(self) -> None:
        place = self._place
        body = {"title": place.words.title() or "x"} | place.maybe(
            0.3, id=f"intent-{place.chance.randrange(5)}", description=place.words.text(),
            constraints=[place.words.text(5)],
        )  # fmt: skip
        answer = self._ask("POST", "/api/v1/intents", body, "lead")
        self._intents = [*self._intents[-2:], *answer.made()]

    def make_task(self) -> None:
        place = self._place
        policy = place.maybe(
            0.3, max_entries=place.choice([1, 3, 50]), archive_on_completion=False,
            inherit_from_parent=True, max_total_size_kb=1,
        )  # fmt: skip
        body = {
            "intent_id": self._intent(), "name": "read", "memory_policy": policy,
            **place.maybe(0.8, assigned_agent=place.choice(AGENTS)),
            **place.maybe(0.2, id=f"task-{place.chance.randrange(9)}", parent_task_id=self._task()),
        }  # fmt: skip
        self._learn_task(self._ask("POST", "/api/v1/tasks", body, "lead"))

    def change_task(self) -> None:
        place, task = self._place, self._task()
        body = place.maybe(
            0.5, status=place.choice([*STATES[:5] * 2, *STATES]), output={"n": place.words.text(5)},
            assigned_agent=place.choice([*AGENTS, None]), memory_policy={"max_entries": 2},
        )  # fmt: skip
        match = {"If-Match": f'"{self._tasks.get(task, {}).get("version", 1)}"'}
        agent = place.choice([*AGENTS, "lead", "lead"])
        self._learn_task(self._ask("PATCH", f"/api/v1/tasks/{part(task)}", body, agent, match))

    def look_at_an_intent(self) -> None:
        place, task = self._place, part(self._task())
        intent = f"/api/v1/intents/{part(self._intent())}"
        path = place.choice([
            intent, f"{intent}/tasks", f"{intent}/tasks?status=running&limit=2", f"{intent}/acl",
            f"{intent}/coordinators", f"{intent}/{self._events()}", f"{intent}/events",
            f"{intent}/events?event_type=memory.archived", f"/api/v1/tasks/{task}",
        ])  # fmt: skip
        self._follow(self._ask("GET", path, None, place.choice([*AGENTS, "lead"])))

    def log(self) -> None:
        body = {"event_type": "comment", "payload": {"text": self._place.words.text()}}
        self._ask("POST", f"/api/v1/intents/{part(self._intent())}/events", body)

    def coordinate(self) -> None:
        place = self._place
        if self._coordinators and place.is_rare(0.3):
            path = f"/api/v1/coordinators/{place.choice(self._coordinators)}"
            self._ask(place.choice(["GET", "DELETE"]), path, None, "lead")
            return
        rails = place.maybe(
            0.3, max_working_memory_per_task=2, max_episodic_memory_per_agent=2,
            allowed_semantic_namespaces=["notes"], denied_semantic_namespaces=["facts"],
            memory_archive_required=True,
        )  # fmt: skip
        body: dict[str, object] = {
            "intent_id": self._intent(), "agent_id": place.choice(AGENTS), "guardrails": rails,
        }  # fmt: skip
        body |= place.maybe(0.3, expires_at=place.soon())
        answer = self._ask("POST", "/api/v1/coordinators", body, "lead")
        self._coordinators += answer.made()

    def grant(self) -> None:
        place = self._place
        if self._grants and place.is_rare(0.3):
            intent, grant = place.choice(self._grants)
            self._ask("DELETE", f"/api/v1/intents/{intent}/acl/entries/{grant}", None, "lead")
            return
        intent = part(self._intent())
        body: dict[str, object] = {"principal_id": place.choice(AGENTS)} | place.maybe(
            0.3, expires_at=place.soon()
        )
        answer = self._ask("POST", f"/api/v1/intents/{intent}/acl/entries", body, "lead")
        self._grants += [(intent, grant) for grant in answer.made()]

    def _ask(
        self, method: str, path: str, body: object = None, agent: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:  # fmt: skip
        place = self._place
        asking = agent if agent and place.is_rare(0.9) else place.choice(AGENTS)
        given = {"X-Agent-ID": asking, **(headers or {})}
        return (place.ask if method == "GET" else place.write)(method, path, body, given)

    def _entry(self, agent: str) -> dict[str, Any]:
        place, tier = self._place, self._place.choice(TIERS)
        own = {} if tier == "semantic" else {"agent_id": agent}
        scope = place.maybe(0.3, task_id=self._task()) | place.maybe(0.1, intent_id=self._intent())
        return {
            **own, "namespace": place.choice(SPACES), "key": place.choice(KEYS),
            "memory_type": tier,
            "value": self._value(),
            **place.maybe(
                0.15, tags=place.some(["x", "y", "数据"]), pinned=True, priority="low",
                ttl=place.choice(TTLS), expires_at=place.soon(),
                sensitivity=place.choice(SENSITIVITIES),
            ),
            **({"scope": scope} if scope else {}),
        }  # fmt: skip

    def _value(self) -> dict[str, Any]:
        place = self._place
        return {
            place.words.word(): place.choice([place.words.text(), 1.5, None, [1, "x"], {"é": 2}])
        }

    def _learn(self, answer: Any) -> None:
        self._entries |= {id_: answer.json() for id_ in answer.made()}

    def _learn_task(self, answer: Any) -> None:
        self._tasks |= {id_: answer.json() for id_ in answer.made()}

    def _follow(self, answer: Any) -> None:
        told = answer.json() if answer.is_success else None
        if isinstance(told, list) and told and "sequence" in told[-1]:
            self._seen = told[-1]["sequence"]

    def _events(self) -> str:
        return f"events?after={self._seen}&limit={self._place.choice([1, 5, 1000])}"

    def _held(self) -> dict[str, Any]:
        return self._place.late([*self._entries.values()], {"id": NOBODY})

    def _intent(self) -> str:
        return self._place.late(self._intents, "none")

    def _task(self) -> str:
        return self._place.late([*self._tasks][-6:], "none")

    def _own(self, agent: str, rest: str) -> str:
        return f"/api/v1/agents/{agent}/memory/{rest}"

    def _query(self, **given: object) -> str:
        return urlencode({name: it for name, it in given.items() if it is not None})
