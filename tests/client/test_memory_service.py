"""The two implementations of the port: the same question has the same answer from both."""

import random
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.local import opened_here
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry
from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.contract.models import MemoryServiceError, Message

from ..support.service import Clock, serving

QUESTIONS = 400
SECRET = "sk-ant-api03-" + "Zm9vYmFy" * 8
ODD = (
    "", " ", "x", "\x00", "\ud800", "a\ud83d b", "\u00dcn\u00ef", "\u0130", "e\u0301", "\u2028",
    "\n", "a/b", ".", "..", "%2F", "q?a=b&c#d", "'; DROP", "NEAR(", "<private>x</private>", SECRET,
    "x" * 51, "x" * 201, "x" * 501,
)  # fmt: skip
TEXTS = (*ODD, *["words"] * 46)  # two of three are like each other, and find each other
MAYBE = (*TEXTS, *[None] * 69)
TAGS = ((), ("a",), ["b", "b"], ("",), ("x" * 101,), ("t",) * 21, ("\ud800",), (SECRET,), "abc")
IDS = (-1, 0, 1, 2, 3, 999, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 70)
LIMITS = (-1, 0, 1, 2, 5, 1000, 1001, 10**30)
EITHER = (False, True)
NO_TEXTS: tuple[Any, ...] = (None, 5, [])  # what no type lets through, but a program sends
MESSAGES = [
    [Message(role=role, content=content), Message(role="user", content="Go on.")]
    for role in ("user", "assistant", *ODD, *NO_TEXTS)
    for content in (*ODD[:3], SECRET, *NO_TEXTS)
]
IN_PROJECT = {"project": MAYBE}
LIFE = {"ttl": (None, None, 60, -1), "pinned": (None, True, False),
        "supersedes": ((), (), (1,), (2, 999), "1")}  # fmt: skip

# A method, the values of its arguments, and those of its options.
METHODS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("save", [], {"session_id": TEXTS, "project": TEXTS, "type": TEXTS, "title": TEXTS,
                  "content": TEXTS, "tags": TAGS, "scope": MAYBE, "topic_key": MAYBE, **LIFE}),
    ("search", [TEXTS], {**IN_PROJECT, "type": MAYBE, "scope": MAYBE, "tag": MAYBE,
                         "limit": LIMITS, "explain": EITHER, "superseded": EITHER}),
    ("context", [], {"project": TEXTS, "query": MAYBE, "limit": LIMITS, "explain": EITHER,
                     "tag": MAYBE, "max_tokens": (None, None, 0, 40), "ages": EITHER,
                     "content_chars": (None, 3)}),
    ("recent", [MAYBE], {"type": MAYBE, "scope": MAYBE, "tag": MAYBE, "limit": LIMITS,
                         "before": (None, None, *IDS)}),
    ("update", [IDS], {"title": MAYBE, "content": MAYBE, "tags": (None, *TAGS), **LIFE}),
    ("timeline", [IDS], {"before": LIMITS, "after": LIMITS}),
    ("get", [IDS], {}), ("history", [IDS], {}), ("stats", [], IN_PROJECT), ("confirm", [IDS], {}),
    ("restore", [IDS, (1, 2, 99)], {}), ("delete", [(0, 3, 999)], {}),
    ("sessions", [MAYBE], {"limit": LIMITS, "before": MAYBE}),
    ("start_session", [TEXTS, TEXTS], {}), ("append_messages", [TEXTS, MESSAGES], IN_PROJECT),
    ("end_session", [TEXTS, MESSAGES], IN_PROJECT),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::agentops_memory_client.MemoryServiceWarning")
async def test_both_answer_alike_whatever_is_asked(tmp_path: Path) -> None:
    chance, place = random.Random(20), settings({"MEMORY_DB_PATH": str(tmp_path / "here.db")})  # noqa: S311 - no secret
    with serving(tmp_path / "there.db") as service:
        async with (
            AsyncMemoryClient(service.url, retries=0) as there,
            opened_here(place, Telemetry.started(None), clock=Clock()) as here,
        ):
            for _ in range(QUESTIONS):
                name, arguments, options = chance.choice(METHODS)
                given = [chance.choice(it) for it in arguments]
                named = {option: chance.choice(it) for option, it in options.items()}
                answers: list[object] = []
                for each in (here, there):
                    try:
                        answers.append(await getattr(each, name)(*given, **named))
                    except MemoryServiceError as error:
                        answers.append((type(error), str(error)))
                assert answers[0] == answers[1], (name, given, named)
