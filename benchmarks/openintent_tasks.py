"""The ends of tasks beside single writes, and what other writers meet meanwhile."""

import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

from .figures import Figure, at_most
from .measures import Times, times_in_turns

MEMORY, INTENTS, TASKS = (f"/api/v1/{it}" for it in ("memory", "intents", "tasks"))
ENDS, HELD = 20, 100  # tasks that end, and the entries of each
LARGE, LONG = 10_000, 6_400  # entries of a large task, and the bytes of each
BATCH = 100


class Worker:
    """An agent with tasks, of intents that it has made itself."""

    def __init__(self, ask: Callable[..., Any], name: str) -> None:
        self.ask, self.name = ask, name

    def task(self, **policy: int) -> str:
        intent = self.ask("POST", INTENTS, {"title": "benchmark"})["id"]
        body = {"intent_id": intent, "name": "work", "assigned_agent": self.name}
        made: str = self.ask("POST", TASKS, body | {"memory_policy": policy})["id"]
        return made

    def fill(self, task: str, count: int, size: int) -> None:
        fields = {"agent_id": self.name, "namespace": task, "memory_type": "working",
                  "scope": {"task_id": task}, "value": {"text": "x" * size}}  # fmt: skip
        for first in range(0, count, BATCH):
            keys = range(first, min(first + BATCH, count))
            entries = [fields | {"key": str(it)} for it in keys]
            self.ask("POST", f"{MEMORY}/batch", {"entries": entries})

    def end(self, task: str) -> None:
        self.ask("PATCH", f"{TASKS}/{task}", {"status": "completed"}, If_Match="1")


def figures(worker: Worker, create: Callable[[], object]) -> Iterator[Figure]:
    """The end of a task against a create; and what others meet while a large one ends."""
    tasks = [worker.task() for _ in range(ENDS)]
    for task in tasks:
        worker.fill(task, HELD, 400)
    name = f"the end of a task with {HELD} entries"
    ends = iter(tasks)
    times = times_in_turns(
        {"create": create, name: lambda: worker.end(next(ends))} for _ in range(ENDS)
    )
    yield Figure(
        what=f"{name} against create: p50",
        value=times[name].p50 / times["create"].p50,
        aim=at_most(15),
        beside=f"{times[name]} against {times['create']}",
    )
    yield from _large(worker, create)


def _large(worker: Worker, create: Callable[[], object]) -> Iterator[Figure]:
    task = worker.task(max_entries=LARGE, max_total_size_kb=65_536)
    worker.fill(task, LARGE, LONG)
    without = Times()
    _write(create, without, until=time.perf_counter() + 5)
    during, ending = Times(), Thread(target=worker.end, args=(task,))
    ending.start()
    _write(create, during, until=time.perf_counter() + 5)
    ending.join()
    yield Figure(
        what=f"creates while a task with {LARGE:,} entries ends: p99",
        value=during.p99 / without.p99,
        aim=at_most(5),
        beside=f"{during} against {without}",
    )


def _write(create: Callable[[], object], times: Times, until: float) -> None:
    while (began := time.perf_counter()) < until:
        create()
        times.taken.append(time.perf_counter() - began)
