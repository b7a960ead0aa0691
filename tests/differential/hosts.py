"""Hosts of OpenWOP: entries of refs, runs and what these see, passes, commitments, proposals."""

from typing import Any

from ..support.openwop_hosts import H
from .place import Place, part

REFS = ["mem://a", "mem://a", "mem://b", "user:42", "tenant-memory", "数据"]
BAD_REFS = ["tenants/acme/x", "a/../b", "x" * 300, "nobody's"]
TAGS = ["x", "y", "subject:anna", "subject:ben", "key:colour", "pinned", "source:1", "数据"]
ENDS = ["completed", "failed", "cancelled", "none"]
NOBODY = "mem_" + "0" * 32
KINDS = ["agent-pack", "workflow-chain-pack", "prompt-template", "automation"]
EVENTS = [None, None, "memory.written", "commitment.fired", "memory.compacted", "proposal.created"]


class Hosts:
    """What is known of entries by ref, runs, passes and proposals."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._entries: dict[str, list[str]] = {}
        self._runs: list[str] = []
        self._open: list[str] = []
        self._passes: list[str] = []
        self._commitments: list[str] = []
        self._proposals: list[str] = []
        self._artifacts: list[str] = []
        self._erasures: list[str] = []
        self._count = 0
        self._next = "0"

    def put(self) -> None:
        place, ref = self._place, self._ref()
        tags = [*place.some(TAGS), *place.maybe(0.1, **{"when:x": 0, f"due:{place.soon()}": 0})]
        ends = place.choice(["expiresAt", "ttlSeconds"])
        body = {"memoryRef": ref, "content": place.words.text(30), "tags": tags} | place.maybe(
            0.12, id=f"own-{place.chance.randrange(6)}", supersedes=[self._entry(ref)],
            **{ends: place.soon() if ends == "expiresAt" else place.choice([1, 3_600])},
        )  # fmt: skip
        if self._open and place.is_rare(0.3):
            body |= {"runId": place.choice(self._open)} | place.maybe(
                0.5, nodeId="n", agentId="ada"
            )
        answer = self._write("POST", "/memory", body)
        self._learn(ref, answer)

    def put_alike(self) -> None:
        """What a consolidation finds."""
        text, tags = self._place.words.text(12), self._place.some(TAGS, 1)
        for said in (text, f"{text}. {self._place.words.word()}"):
            body = {"memoryRef": "mem://a", "content": said, "tags": tags}
            self._learn("mem://a", self._write("POST", "/memory", body))

    def delete(self) -> None:
        ref = self._ref()
        self._write("DELETE", f"/memory/{part(self._entry(ref))}?{_in(ref)}{self._bound()}")

    def read(self) -> None:
        ref, place = self._ref(), self._place
        entry, kind = part(self._entry(ref)), place.choice(["memory", "memory", "provenance"])
        place.ask(
            "GET", f"{H}/{kind}/{entry}?{_in(ref)}{self._bound() if kind == 'memory' else ''}"
        )

    def list_entries(self) -> None:
        ref, place = self._ref(), self._place
        before = self._entry(ref) if place.is_rare(0.2) else None
        run = self._run() if place.is_rare(0.4) else None
        place.look(
            f"{H}/memory", memoryRef=ref, tag=place.choice([None, None, *TAGS]), before=before,
            runId=run,
            limit=place.choice([None, 1, 3]), tokenBudget=place.choice([None, None, 1, 90, 5_000]),
            rank=place.choice([None, None, None, "recency", "relevance"]),
        )  # fmt: skip

    def search(self) -> None:
        place = self._place
        place.look(
            f"{H}/search", memoryRef=self._ref(), q=place.words.question(),
            tag=place.choice([None, None, *TAGS]), limit=place.choice([None, 3]),
            tokenBudget=place.choice([None, None, 90]),
        )  # fmt: skip

    def look_around(self) -> None:
        place = self._place
        path = place.choice([
            "/refs?limit=2", "/refs", f"/index?{_in(self._ref())}",
            f"/commitments?{_in(self._ref())}",
            "/proposals?limit=3", "/proposals?state=draft", "/artifacts",
            "/proposals?kind=automation",
        ])  # fmt: skip
        place.ask("GET", H + path)

    def open(self) -> None:
        place, self._count = self._place, self._count + 1
        body = place.maybe(
            0.6, runId=f"run-{self._count - place.choice([0, 0, 0, 1])}",
            memoryRefs=place.some(REFS),
            agentId="ada", workflowId=place.words.word(),
        )  # fmt: skip
        self._learn_run(self._write("POST", "/runs", body))

    def end(self) -> None:
        run, status = self._run(), self._place.choice(ENDS)
        if self._write("POST", f"/runs/{part(run)}/end", {"status": status}).is_success:
            self._open = [it for it in self._open if it != run]

    def register(self) -> None:
        body = {
            "secretId": "crm",
            "value": self._place.choice(["production", "short", "connections"]),
        }
        self._place.ask("POST", f"{H}/runs/{part(self._run())}/secrets", body)

    def fork(self) -> None:
        place = self._place
        body = {"mode": place.choice(["replay", "branch", "branch"])} | place.maybe(
            0.8, fromSeq=place.choice([0, 1, 1, 2, 3, 99])
        )
        self._learn_run(self._write("POST", f"/runs/{part(self._run())}/fork", body))

    def look_at_a_run(self) -> None:
        run = part(self._run())
        after = self._place.choice(["", "?after=0", "?after=1&limit=1"])
        self._place.ask("GET", f"{H}/runs/{run}{self._place.choice(['', f'/events{after}'])}")

    def follow(self) -> None:
        place = self._place
        answer = place.look(
            f"{H}/events", after=place.choice([None, self._next, self._next]),
            type=place.choice(EVENTS),
            limit=place.choice([None, 3, 1_000]),
        )  # fmt: skip
        if answer.is_success:
            self._next = answer.json()["next"]

    def compact(self) -> None:
        place = self._place
        self._pass("/compact", place.maybe(0.3, content=place.words.text(), keepSources=True))

    def distill(self) -> None:
        place = self._place
        self._pass("/distill", place.maybe(
            0.3, content=place.words.text(), recursive=True, expiresAt=place.soon(),
            tokenBudget=place.choice([10, 400, 5_000]),
        ))  # fmt: skip

    def consolidate(self) -> None:
        place = self._place
        ids = [self._entry("mem://a") for _ in range(2)]
        merge = {"ids": ids, "content": place.words.text(), "tags": place.some(TAGS[:2])}
        self._pass("/consolidate", place.maybe(0.4, merges=[merge]))

    def undo(self) -> None:
        self._write("POST", f"/passes/{self._place.late(self._passes, 'run_' + '0' * 32)}/undo")

    def forget(self) -> None:
        place = self._place
        body = {"subject": place.choice(["anna", "ben", "user:42", "nobody"])}
        answer = self._write("POST", "/forget", body | place.maybe(0.5, dryRun=True))
        if answer.is_success and (erasure := answer.json().get("erasureId")):
            self._erasures.append(erasure)
        if self._erasures:
            place.ask("GET", f"{H}/erasures/{place.choice(self._erasures)}")

    def commit(self) -> None:
        place, ref = self._place, self._ref()
        body = {"memoryRef": ref, "memoryId": self._entry(ref)}
        body |= place.choice([
            {"condition": "time", "dueAt": place.soon()}, {"condition": "predicate", "tag": "x"},
            {"condition": "predicate", "tag": place.choice(TAGS)}, {"condition": "none"},
        ])  # fmt: skip
        self._commitments += self._write("POST", "/commitments", body).made()
        if self._commitments:
            method = place.choice(["GET", "GET", "DELETE"])
            self._write(method, f"/commitments/{place.choice(self._commitments)}")

    def propose(self) -> None:
        place = self._place
        artifact = {"name": place.words.word(), "version": "1", "workflowId": "w"} | place.maybe(
            0.5, templateId="t", text=place.words.text(), n=place.choice([1e5, 1.50, 0.1])
        )
        if place.is_rare(0.3):
            artifact = {"version": "1", "name": "same"}
        body = {
            "kind": place.choice(KINDS), "artifact": artifact,
            "provenance": {"sourceRunIds": place.some(self._runs)},
            **place.maybe(0.5, title=place.words.title(), rationale=place.words.text()),
        }  # fmt: skip
        self._proposals += self._write("POST", "/proposals", body).made()

    def decide(self) -> None:
        place = self._place
        at = f"/proposals/{place.late(self._proposals[-6:], 'prop_' + '0' * 32)}"
        method, path, body = place.choice([
            ("PATCH", at, place.maybe(0.5, title=place.words.title(), artifact={"name": "b",
            "version": "2"})),
            ("POST", f"{at}/apply", {}), ("POST", f"{at}/apply", {}), ("POST", f"{at}/reject", {}),
            ("DELETE", at, None), ("GET", at, None), ("GET", at, None),
        ])  # fmt: skip
        answer = self._write(method, path, body)
        if path.endswith("apply"):
            self._artifacts += answer.made("installedArtifactRef")
        if self._artifacts and place.is_rare(0.4):
            place.ask("GET", f"{H}/artifacts/{part(place.choice(self._artifacts[-3:]))}")

    def _pass(self, path: str, body: dict[str, Any]) -> None:
        answer = self._write("POST", path, {"memoryRef": self._ref(), **body})
        self._passes += answer.made("runId")
        for event in answer.made("event"):
            outputs = [it for it in [event["payload"].get("outputId")] if it]
            self._entries.setdefault("mem://a", []).extend(outputs)

    def _write(self, method: str, path: str, body: object = None) -> Any:
        asking = self._place.ask if method == "GET" else self._place.write
        return asking(method, H + path, body)

    def _learn(self, ref: str, answer: Any) -> None:
        self._entries.setdefault(ref, []).extend(it["id"] for it in answer.made("entry"))

    def _learn_run(self, answer: Any) -> None:
        for run in answer.made("runId"):
            self._runs += [run] * (run not in self._runs)
            if answer.json()["status"] == "running":
                self._open = [*self._open[-4:], run]

    def _bound(self) -> str:
        return f"&runId={part(self._run())}" if self._place.is_rare(0.3) else ""

    def _run(self) -> str:
        return self._place.choice([*self._open * 4, *self._runs[-8:], "nobody's"])

    def _ref(self) -> str:
        return self._place.choice(BAD_REFS if self._place.is_rare(0.04) else REFS)

    def _entry(self, ref: str) -> str:
        return self._place.late(self._entries.get(ref, []), NOBODY)


def _in(ref: str) -> str:
    return f"memoryRef={part(ref)}"
