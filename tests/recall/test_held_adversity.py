"""Whatever is asked, and whatever befalls the file of projects in memory: a clear answer."""

import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from ..support.damages import harmed, page_of
from ..support.fast_reads import LONG_WAY, Counted, both, counted, held, without_date
from ..support.process import served
from ..support.raw import wire
from ..support.service import Service, observation, serving

__all__ = ["counted"]

SEARCH, CONTEXT = "/search?project=heron&q=", "/context?project=heron&query="
MEBIBYTE = 1 << 20

PROMPTS = {
    "emoji": "rollback 👩‍👩‍👧‍👦🏳️‍🌈", "right to left": "שלום rollback مرحبا\u202e\u2066",
    "combining": "r" + "\u0301" * 300 + " rollback\u0489", "chinese": "東京都のrollback手順",
    "without letters": "!!! ??? … — \u200b\u2028",
    "operators": 'rollback OR NOT "x* NEAR(a, b) ^c {title}: AND', "one long word": "a" * 2_000,
    "many words": "rollback " * 900, "private": "\ue000\uf8ff\U0010ffff rollback",
}  # fmt: skip
ENCODED = {
    "NUL": "rollback%00%00worker", "lone surrogates": "rollback%ED%A0%80%ED%B0%80",
    "no UTF-8": "%FF%FE%C0%80rollback", "cut off": "rollback%", "no digits": "rollback%zz%G1",
    "plus": "roll%2Bback++worker+",
}  # fmt: skip


@pytest.fixture
def service(tmp_path: Path, counted: Counted) -> Iterator[Service]:
    """A service with two projects in memory."""
    with serving(tmp_path / "memory.db", MEMORY_SWEEP_EVERY="0") as service:
        for number, text in enumerate(("rollback worker", "rollback 東京都", "retry 👩‍👩‍👧")):
            service.save(text, project="heron", title=f"t{number}")
        service.save("rollback elsewhere", project="stork", session_id="s2")
        for path in (SEARCH, CONTEXT):
            held(service, counted, f"{path}rollback")
        yield service


@pytest.mark.slow
def test_whatever_is_asked_is_answered_as_the_long_way_does(
    service: Service, counted: Counted
) -> None:
    chance, before = random.Random(40), counted.answered  # noqa: S311 - the same each time
    prompts = [*map(quote, PROMPTS.values()), *ENCODED.values()]
    paths = [f"{path}{prompt}" for prompt in prompts for path in (SEARCH, CONTEXT)]
    for project in ("none", "%00", "%ED%A0%80", "x" * 5_000, "HERON%20"):
        paths += [it.replace("heron", project) + "rollback" for it in (SEARCH, CONTEXT)]
    for _ in range(40):
        sent = "".join(f"%{it:02X}" for it in chance.randbytes(chance.choice([1, 3, 20, 300])))
        prompt = chance.choice([sent, f"rollback+{sent}", f"{sent}&limit={sent}", f"x&{sent}=1"])
        paths.append(chance.choice([SEARCH, CONTEXT]) + prompt)

    for path in paths:
        one, other = both(service, path)
        assert one == other, path
        assert one[:1] in b"24", one[:300]
        assert (b"rollback elsewhere" in one) == ("project=stork" in path)
    assert counted.answered > before + 10


def test_a_prompt_of_a_mebibyte_is_refused_and_the_service_goes_on(service: Service) -> None:
    for size in (5_000, 60_000, MEBIBYTE):
        request = f"GET {CONTEXT}{'rollback+' * (size // 9)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with wire(service.url) as connection:
            connection.send(request.encode())
            assert connection.answer().status in (200, 400, 414, 431), size
    assert both(service, f"{SEARCH}rollback")[0].startswith(b"200")


def answers(service: Service, *words: str) -> list[httpx.Response]:
    """Of memory and of the long way, to each word."""
    return [
        service.http.get(f"{path}{word}", headers=headers)
        for word in words
        for path in (SEARCH, CONTEXT)
        for headers in ({}, LONG_WAY)
    ]


def assert_nothing_wrong(asked: list[httpx.Response], *said: str) -> None:
    """Each is refused with a sentence, or tells what was said and nothing else."""
    for answer in asked:
        assert answer.status_code in (200, 503), answer.text
        told = answer.json()
        if answer.status_code == 503:
            assert told["error"].endswith(".")
            continue
        found = told if isinstance(told, list) else told["recent_observations"]
        assert {it["content"] for it in found} <= set(said)


OWN = ("rollback worker", "rollback 東京都", "retry 👩‍👩‍👧")


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    ["memories_fts_0_idx", "memories", "memory_stems", "area_stems", "spaces", "database_state"],
)
def test_a_damaged_page_is_no_error_and_nothing_wrong_is_told(service: Service, table: str) -> None:
    harmed(service.path, page_of(service.path, table))
    for _ in range(3):
        assert_nothing_wrong(answers(service, "rollback", "retry", "rolback", "東京都"), *OWN)


@pytest.mark.slow
def test_a_database_in_the_place_of_another_is_never_mixed_with_it(
    service: Service, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    with serving(other) as stranger:
        stranger.save("rollback of a stranger", project="heron")
    other.replace(service.path)
    assert_nothing_wrong(answers(service, "rollback", "retry", "stranger"), *OWN)
    refused = service.http.post("/observations", json=observation("rollback", project="heron"))
    assert refused.status_code == 503
    assert_nothing_wrong(answers(service, "rollback", "queue"), *OWN)


@pytest.mark.slow
def test_what_another_log_holds_is_never_mixed_with_what_is_in_memory(service: Service) -> None:
    path = service.path
    for kind in ("-wal", "-shm"):
        path.with_name(path.name + kind).rename(path.with_name(path.name + kind + ".old"))
    with within(_WRITES, str(path)):
        asked = answers(service, "rollback", "retry")
    assert {it.status_code for it in asked} == {503}
    assert_nothing_wrong(asked)


@pytest.mark.slow
def test_a_transaction_of_another_process_holds_up_no_read(
    service: Service, counted: Counted
) -> None:
    with within(_BEGINS, str(service.path)):
        before = counted.answered
        asked = answers(service, "rollback", "worker", "new words")
        assert counted.answered >= before + 4
    assert {it.status_code for it in asked} == {200}
    assert_nothing_wrong(asked, *OWN)


@pytest.mark.slow
def test_a_full_disk_leaves_what_is_in_memory_as_it_was(path: Path) -> None:
    large = "rollback " + "what fills a disk " * 2_000
    with served(path) as (program, http):
        for number in range(5):
            body = observation(f"rollback {number}", project="heron", title=f"t{number}")
            http.post("/observations", json=body).raise_for_status()
        paths = [f"{SEARCH}rollback", f"{CONTEXT}rollback", f"{CONTEXT}nothing"]
        for _ in range(40):  # until memory has it
            before = [without_date(http.get(it)) for it in paths]
        _, most = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (MEBIBYTE // 2, most))
        statuses = {
            http.post("/observations", json=observation(f"{it} {large}", project="x")).status_code
            for it in range(20)
        }
        assert 503 in statuses <= {201, 503}
        before = [without_date(http.get(it)) for it in paths]  # others were saved, perhaps
        body = observation(f"rollback {large}", project="heron")
        assert http.post("/observations", json=body).status_code == 503
        for headers in ({}, LONG_WAY):
            after = [without_date(http.get(it, headers=headers)) for it in paths]
            assert after == before


@contextmanager
def within(code: str, path: str) -> Iterator[None]:
    """Inside, another process has done this to a file, and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", code + "\nprint('done', flush=True)\ninput()", path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "done\n"
        yield
        process.stdin.write("\n")


_OPEN = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
"""
_BEGINS = f"{_OPEN}database.execute('BEGIN EXCLUSIVE')"
_WRITES = f"{_OPEN}database.execute('PRAGMA user_version = 0')"
