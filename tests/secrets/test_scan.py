"""Secrets that were stored before there was a rule against them are found, and taken out."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from agentops_memory.engine.engine import Engine
from agentops_memory.errors import NotFound
from agentops_memory.memory.access import OPERATOR, Caller
from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.saves import erase
from agentops_memory.operations import scan as scanning
from agentops_memory.secrets.redaction import DEFAULT_RULES

from ..support.callers import calling, made_key
from ..support.engine import opened
from ..support.engines import rows
from ..support.files import assert_index_is_whole
from ..support.service import START, Service, observation, serving
from ..support.stores import at, entry, entry_at, ok, store, update
from ..support.terminal import Terminal
from .test_redaction import AWS, GITHUB, RARE, everything

KINDS = ["aws-key-id", "github-token"]


@contextmanager
def allowing(path: Path) -> Iterator[Service]:
    """A service that stores secrets, which the next one of this file does not allow."""
    exceptions = path.with_name(f"{path.name}.redaction")
    exceptions.write_text(json.dumps({"default": {"allow_kinds": KINDS}}))
    with serving(path) as service:
        yield service
    exceptions.unlink()


@pytest.fixture
def stored(path: Path) -> Path:
    """A database in which secrets are stored in every place that holds text."""
    with allowing(path) as service:
        fill(service)
    assert RARE.encode() in everything(path.parent).lower()
    return path


def fill(service: Service) -> None:
    save, http = service.save, service.http
    upserted = save(f"the pear is {AWS}", topic_key="pear")
    save(f"the pear is ripe and {GITHUB}", title="ripe", topic_key="pear", tags=[AWS])
    http.patch(f"/observations/{upserted['id']}", json={"title": f"ripe {GITHUB}"})
    deleted = save(f"the apple is {GITHUB}", project="other")
    http.delete(f"/observations/{deleted['id']}")
    save("one", topic_key=f"key {AWS}")
    save("two", topic_key=f"key AKIA{'Z' * 16}")
    save("nothing is wrong with this one")
    said = [{"role": "user", "content": f"use {AWS}"}]
    http.post("/sessions/s1/end", json={"messages": said})


def scan(path: Path, *options: str) -> tuple[int, str]:
    done = Terminal().run("scan", "--db", path, *options)
    return done.exit_code, done.stdout


def test_a_scan_says_what_it_would_take_out_then_takes_it_out_of_one_tenant(stored: Path) -> None:
    before = everything(stored.parent)

    code, said = scan(stored)

    assert code == 1
    assert said.splitlines() == [
        "observation 1 of demo: github-token 3, aws-key-id 4",
        "observation 2 of other: github-token 4", "observation 3 of demo: aws-key-id 1",
        "observation 4 of demo: aws-key-id 1", "session s1 of demo: aws-key-id 1",
        "14 secrets found; --redact removes them",
    ]  # fmt: skip
    assert everything(stored.parent) == before
    with serving(stored) as service, calling(service, made_key(stored, tenant="acme")) as client:
        client.post("/observations", json=observation("apple"))
    for tenant, code in (("acme", 0), ("nobody", 1), ("../memory", 1)):
        assert scan(stored, "--tenant", tenant, "--redact")[0] == code

    with serving(stored) as service, calling(service, made_key(stored)) as http:
        first = http.get("/observations/1").json()
        code, said = scan(stored, "--redact", "--json")
        after = http.get("/observations/1").json()
        assert after["content"] == "the pear is ripe and [REDACTED:github-token]"
        changed = ("title", "content", "tags", "normalized_hash")
        assert after | {name: first[name] for name in changed} == first
        history = http.get("/observations/1/history").json()
        assert [row["content"] for row in history][-1] == "the pear is [REDACTED:aws-key-id]"
        assert http.get("/search?q=pear").json()[0]["id"] == 1
        assert http.get(f"/search?q={RARE}").json() == []
        keys = [http.get(f"/observations/{id_}").json().get("topic_key") for id_ in (3, 4)]
        assert keys == ["key [REDACTED:aws-key-id]", None]
        (session,) = http.get("/sessions/recent?project=demo").json()
        assert session["summary"].endswith("Started with: use [REDACTED:aws-key-id]")

    assert code == 0
    assert sum(sum(json.loads(line)["kinds"].values()) for line in said.splitlines()) == 14
    kept = everything(stored.parent).lower()
    assert RARE.encode() not in kept
    assert AWS.lower().encode() not in kept
    assert_index_is_whole(stored)
    receipts = rows(stored, "SELECT project, observations, sessions FROM erasures ORDER BY 1, 2")
    assert receipts == [("demo", 0, 1), ("demo", 3, 0), ("other", 1, 0)]
    assert scan(stored) == (0, "no secrets found in texts\n")


@pytest.mark.slow
def test_memory_stores_are_scanned_too(path: Path) -> None:
    with allowing(path) as service:
        http = service.http
        made = store(http, f"Notes {AWS}", metadata={"token": GITHUB})
        clean = store(http, "Clean")
        entry(http, clean, "a.md", "nothing is wrong with this one")
        told = entry(http, made, f"{AWS}.md", f"first {GITHUB}", metadata={"key": AWS})
        update(http, made, told, f"{'now ' * 20_000}{GITHUB}")
        gone = entry(http, made, "gone.md", f"deleted {AWS}")
        http.delete(entry_at(made, gone))
        before = ok(http.get(at(made, "versions")))["data"]

    code, said = scan(path)

    assert code == 1
    counts = "github-token 1, aws-key-id 1, aws-key-id in a name 1"
    assert said.splitlines() == [
        f"memory {told['id']} of store {made['id']}: {counts}",
        f"store {made['id']}: aws-key-id 1, github-token 1",
        f"versions 1 of memory {told['id']} of store {made['id']}: github-token 1",
        f"versions 1 of memory {gone['id']} of store {made['id']}: aws-key-id 1",
        "6 secrets found; --redact removes them",
        "1 in names and paths remain: they cannot be removed",
    ]

    scan(path, "--redact")

    held = everything(path.parent)
    assert GITHUB.encode() not in held
    assert f"deleted {AWS}".encode() not in held
    with serving(path) as service:
        http = service.http
        now = ok(http.get(entry_at(made, told)))
        assert now["content"] == f"{'now ' * 20_000}[REDACTED:github-token]"
        assert now["content_sha256"] == hashlib.sha256(now["content"].encode()).hexdigest()
        assert now["metadata"] == {"key": "[REDACTED:aws-key-id]"}
        assert now["version"] == 2
        after = ok(http.get(at(made, "versions")))["data"]
        assert [row["id"] for row in after] == [row["id"] for row in before]
        whole = [ok(http.get(at(made, "versions", row["id"]))) for row in after]
        assert [row.get("content") for row in whole][:2] == [None, "deleted [REDACTED:aws-key-id]"]
        assert [row["size"] for row in whole] == [
            len(row.get("content", "").encode()) for row in whole
        ]
        shown = ok(http.get(at(made)))
        assert shown["name"] == "Notes [REDACTED:aws-key-id]"
        assert (shown["entry_count"], shown["total_size"]) == (1, now["size"])
    assert_index_is_whole(path)
    assert scan(path)[1].splitlines()[1:] == [
        "no secrets found in texts",
        "1 in names and paths remain: they cannot be removed",
    ]


def test_a_name_that_is_a_secret_is_shown_and_stays(path: Path) -> None:
    with allowing(path) as service:
        service.http.post("/sessions", json={"id": f"run {GITHUB}", "project": "demo"})
        service.save("apple", scope=GITHUB)

    code, said = scan(path)

    assert code == 1
    assert said.splitlines() == [
        "observation 1 of demo: github-token in a name 1",
        "session run [REDACTED:github-token] of demo: github-token in a name 1",
        "no secrets found in texts",
        "2 in names and paths remain: they cannot be removed",
    ]
    assert scan(path, "--redact")[0] == 1


class ErasingEngine:
    """An engine whose first memory is erased by another caller after each read."""

    def __init__(self, engine: Engine) -> None:
        self.write = engine.write
        self.maintenance = engine.maintenance
        self._engine = engine

    async def read(self, caller: Caller, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
        found = await self._engine.read(caller, work, *args, **named)
        with suppress(NotFound):
            await self._engine.write(caller, erase, MemoryId(1))
        return found


def test_what_is_erased_while_it_is_scanned_is_passed_over(stored: Path) -> None:
    async def scan_and_erase() -> tuple[list[MemoryId | None], int]:
        async with opened(stored, clock=lambda: START) as engine:

            def pages(*, is_redacting: bool) -> AsyncIterator[scanning.ScanPage]:
                other = cast(Engine, ErasingEngine(engine))
                return scanning.pages(other, OPERATOR, DEFAULT_RULES, is_redacting=is_redacting)

            redacted = [
                it.memory async for page in pages(is_redacting=True) for it in page.findings
            ]
            left = [len(page.findings) async for page in pages(is_redacting=False)]
            return redacted, sum(left)

    redacted, left = asyncio.run(scan_and_erase())

    assert (redacted, left) == ([2, 3, 4, None], 0)
    receipts = rows(stored, "SELECT project, observations FROM erasures WHERE kind = 'redaction'")
    assert sorted(receipts) == [("demo", 0), ("demo", 2), ("other", 1)]
    assert_index_is_whole(stored)


def test_long_histories_are_scanned_part_by_part(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "MAX_PAGE_SIZE", 10_000)
    with serving(path) as service:
        for number in range(6):
            for _ in range(3):
                service.save(f"{number} " * 1500, title="t", topic_key=str(number))

    async def pages() -> list[int]:
        async with opened(path, clock=lambda: START) as engine:
            pages = scanning.pages(engine, OPERATOR, DEFAULT_RULES)
            return [page.rows async for page in pages]

    assert asyncio.run(pages()) == [2, 2, 2, 1]
