"""What a host sees of its memory and its runs, compared with the model."""

import random
from collections import Counter
from datetime import datetime
from typing import Any

import httpx

from .openwop_hosts import Host, Json, ok, refused
from .openwop_model import Entry, Model, Run

LOST = (422, "replay_memory_snapshot_unavailable")
LOOKS = 2  # runs that are looked at after each step


def wire(at: datetime) -> str:
    """An instant, as answers have it."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def shown(entry: Entry) -> Json:
    """An entry, as answers have it."""
    end = {} if entry.end is None else {"expiresAt": wire(entry.end)}
    return {
        "id": entry.id, "content": entry.content, "tags": list(entry.tags),
        "createdAt": wire(entry.put.on),
    } | end  # fmt: skip


class Looks:
    """Looks at all refs, live and through some runs."""

    http: httpx.Client
    chance: random.Random
    counts: Counter[str]
    model: Model

    def compare(self) -> None:
        runs = self.model.runs
        looked = self.chance.sample(runs, min(LOOKS, len(runs)))
        for ref in sorted({it.ref for it in self.model.entries}):
            for run in (None, *looked):
                self._compare_list(ref, run)
                self._compare_get(ref, run)
        for run in looked:
            self._compare_log(run)

    def told(self, run: Run) -> list[Json]:
        """The events of a run, whose sequences have no gap."""
        events = Host(self.http).told(run.id, limit=1000)
        assert [it["sequence"] for it in events] == list(range(len(events)))
        assert {it["runId"] for it in events} == {run.id}
        return events

    def is_refused(self, answer: httpx.Response, source: Run, from_seq: int) -> None:
        """Asserts that a snapshot is refused as one that has lost something."""
        assert refused(answer) == LOST, answer.text
        assert answer.json()["details"] == {
            "fromSeq": from_seq, "sourceRunId": source.id, "reason": "retention_expired"
        }  # fmt: skip
        self.counts["refused"] += 1

    def _compare_list(self, ref: str, run: Run | None) -> None:
        expected = [shown(it) for it in self.model.listed(self.model.seen(ref, run), run)]
        tag = self.chance.choice([None, None, "x"])
        if tag:
            expected = [it for it in expected if tag in it["tags"]]
        asked: Json = {"tag": tag} if tag else {}
        limit = self.chance.choice([500, 500, 5])
        answer = self._list(ref, run, asked | {"limit": limit})
        if self._is_refused(answer, ref, run):
            return
        found: list[Json] = ok(answer)["entries"]
        while "next" in answer.json():
            answer = self._list(ref, run, asked | {"limit": limit, "before": answer.json()["next"]})
            found += ok(answer)["entries"]
        assert found == expected, (ref, run)
        self.counts[f"listed: {run.kind if run else 'live'}"] += 1

    def _compare_get(self, ref: str, run: Run | None) -> None:
        held = {it.id: it for it in self.model.shown(self.model.seen(ref, run), run)}
        some = self.chance.choice([it for it in self.model.entries if it.ref == ref])
        answer = self._host(ref, run).get(some.id)
        if self._is_refused(answer, ref, run):
            return
        if some.id in held:
            assert ok(answer) == {"memoryRef": ref, "entry": shown(held[some.id])}
        else:
            assert refused(answer) == (404, "not_found")

    def _is_refused(self, answer: httpx.Response, ref: str, run: Run | None) -> bool:
        """Whether the read is, as it must be or may be."""
        if run is None:
            return False
        if self.model.must_refuse(run, ref):
            assert answer.status_code == 422, (ref, run, answer.text)
        if answer.status_code != 422:
            return False
        assert self.model.may_refuse(run, ref), (ref, run)
        self.is_refused(answer, run.source or run, run.from_seq)
        return True

    def _compare_log(self, run: Run) -> None:
        told = self.told(run)[run.base :]
        kept = [
            it if due.payload is not None else it | {"payload": None}
            for it, due in zip(told, run.log, strict=True)
        ]
        assert [(it["type"], it["payload"], it["timestamp"], it.get("nodeId")) for it in kept] == [
            (it.type, it.payload, wire(it.moment.on), it.node) for it in run.log
        ]

    def _list(self, ref: str, run: Run | None, query: Any) -> httpx.Response:
        bound = {} if run is None else {"runId": run.id}
        return Host(self.http).ask("GET", "/memory", params={"memoryRef": ref, **bound, **query})

    def _host(self, ref: str, run: Run | None) -> Host:
        return Host(self.http, ref, run.id if run else None)
