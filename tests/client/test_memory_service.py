"""The two implementations of the port: the same question has the same answer from both."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.local import opened_here
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry
from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.contract.errors import MemoryServiceError
from agentops_memory_client.contract.models import Message
from agentops_memory_client.contract.service import MemoryService

from ..support.service import Clock, serving

DEEDS = 600
SECRET = "sk-ant-api03-" + "Zm9vYmFy" * 8
TEXTS = (
    "", " ", "x", "\x00", "\ud800", "a\ud83d b", "\u00dcn\u00ef", "\u0130", "e\u0301", "\u2028",
    "\n", "a/b", ".", "..", "%2F", "q?a=b&c#d", "'; DROP", "NEAR(", "<private>x</private>", SECRET,
    "x" * 51, "x" * 201, "x" * 501,
)  # fmt: skip
TAGS: tuple[Sequence[str], ...] = (
    (), ("a",), ["b", "b"], ("",), ("x" * 101,), ("t",) * 21, ("\ud800", "\x00"), (SECRET,), "abc",
)  # fmt: skip
IDS = (-1, 0, 1, 2, 3, 999, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 70)
LIMITS = (-1, 0, 1, 2, 5, 1000, 1001, 10**30)

ChangeKind = tuple[str, tuple[object, ...], Mapping[str, object]]


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::agentops_memory_client.MemoryServiceWarning")
def test_both_answer_alike_whatever_is_asked(tmp_path: Path) -> None:
    with serving(tmp_path / "there.db") as service:
        chance = random.Random(20)  # noqa: S311 - which question is no secret
        asyncio.run(_compared(service.url, tmp_path / "here.db", chance))


async def _compared(url: str, path: Path, chance: random.Random) -> None:
    place = settings({"MEMORY_DB_PATH": str(path)})
    async with (
        AsyncMemoryClient(url, retries=0) as there,
        opened_here(place, Telemetry.started(None), clock=Clock()) as here,
    ):
        for _ in range(DEEDS):
            name, given, named = _deed(chance)
            answers = [await _answer(each, name, given, named) for each in (here, there)]
            assert answers[0] == answers[1], (name, given, named)


async def _answer(
    service: MemoryService, name: str, given: tuple[object, ...], named: Mapping[str, object]
) -> object:
    try:
        answer: object = await getattr(service, name)(*given, **named)
    except MemoryServiceError as error:
        return type(error), str(error)
    return answer


def _deed(chance: random.Random) -> ChangeKind:
    def text(*often: str) -> str:
        return chance.choice([*often, *often, chance.choice(TEXTS)])

    def maybe() -> str | None:
        return chance.choice([None, text()])

    deeds: tuple[Callable[[], ChangeKind], ...] = (
        lambda: ("save", (), {
            "session_id": text("s"), "project": text("p"), "type": text("t"), "title": text("t"),
            "content": text("content words"), "tags": chance.choice(TAGS), "scope": maybe(),
            "topic_key": maybe(),
        }),
        lambda: ("search", (text("words"),), {
            "project": maybe(), "type": maybe(), "scope": maybe(), "tag": maybe(),
            "limit": chance.choice(LIMITS), "explain": chance.random() < 0.5,
        }),
        lambda: ("context", (), {
            "project": text("p"), "query": maybe(), "limit": chance.choice(LIMITS),
            "explain": chance.random() < 0.5,
        }),
        lambda: ("update", (chance.choice(IDS),), {
            "title": maybe(), "content": maybe(), "tags": chance.choice([None, *TAGS]),
        }),
        lambda: ("timeline", (chance.choice(IDS),), {
            "before": chance.choice(LIMITS), "after": chance.choice(LIMITS),
        }),
        lambda: (chance.choice(["get", "history"]), (chance.choice(IDS),), {}),
        lambda: ("stats", (maybe(),), {}),
        lambda: ("sessions", (maybe(),), {"limit": chance.choice(LIMITS), "before": maybe()}),
        lambda: ("start_session", (text("s"), text("p")), {}),
        lambda: ("append_messages", (text("s"), _messages(chance)), {"project": maybe()}),
        lambda: ("end_session", (text("s"), _messages(chance)), {"project": maybe()}),
    )  # fmt: skip
    return chance.choice(deeds)()


def _messages(chance: random.Random) -> list[Message]:
    odd: tuple[Any, ...] = (None, 5, [])  # what no type lets through, but a program sends
    roles = ("user", "assistant", *TEXTS, *odd)
    return [
        Message(role=chance.choice(roles), content=chance.choice((*TEXTS, *odd)))
        for _ in range(chance.randrange(4))
    ]
