"""Large bodies: a file beside the database while they come, bounded memory, no lock held."""

import json
import resource
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..support.process import ANEW, Program, served, until
from ..support.raw import Wire, request
from ..support.service import PLAIN, Clock, Service, observation, serving

MEBIBYTE = 1024 * 1024
LIMIT = 3 * MEBIBYTE
UPLOADS = ("/import", "/sessions/s1/end")


@pytest.fixture
def service(tmp_path: Path, clock: Clock) -> Iterator[Service]:
    with serving(tmp_path / "memory.db", clock=clock, MEMORY_MAX_UPLOAD="3MiB") as running:
        yield running


def spools(folder: Path) -> list[Path]:
    """Open files in the folder that have no name, or that are no database."""
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if link.parent == folder and not is_database(link)]


def is_database(path: Path) -> bool:
    return path.name.startswith("memory.db")


def document(size: int = 2 * MEBIBYTE) -> bytes:
    """An import of that size, with two rows."""
    rows = {"observations": [observation("The first."), observation("The second.")]}
    return json.dumps(rows).encode().ljust(size)


def transcript(size: int) -> bytes:
    return b'{"messages": [{"role": "user", "content": "Hi"}]}'.ljust(size)


@pytest.mark.slow
@pytest.mark.parametrize("path", UPLOADS)
def test_an_upload_may_have_its_limit_and_no_byte_more(service: Service, path: str) -> None:
    whole = document(LIMIT) if path == "/import" else transcript(LIMIT)

    answers = [
        service.http.post(path, content=content)
        for content in (whole, whole + b" ", iter([whole]), iter([whole, b" "]))
    ]

    assert [answer.status_code for answer in answers] == [200, 413, 200, 413]
    sentence = "The body is larger than 3,145,728 bytes; nothing was stored."
    assert answers[1].json() == {"error": sentence}


@pytest.mark.slow
def test_an_upload_lies_beside_the_database_until_it_is_answered_and_holds_nobody_up(
    service: Service, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    folder, whole = service.path.parent, request("POST", "/import", document())

    client.send(whole[: -MEBIBYTE // 2])
    until(lambda: len(spools(folder)) == 1)
    assert all(is_database(path) for path in folder.iterdir())
    saved = [service.save(f"Meanwhile {number}.")["action"] for number in range(5)]
    client.send(whole[-MEBIBYTE // 2 :])

    assert saved == ["created"] * 5
    assert client.answer().json == {"imported_sessions": 0, "imported_observations": 2}
    assert spools(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"{", None], ids=["refused", "dropped"])
def test_an_upload_that_fails_leaves_no_file(
    service: Service, client: Wire, end: bytes | None
) -> None:
    folder, whole = service.path.parent, request("POST", "/import", document()[:-1] + b"{")
    client.send(whole[:-1])
    until(lambda: len(spools(folder)) == 1)

    if end is None:
        client.reset()
    else:
        client.send(end)
        assert client.answer().status == 400

    until(lambda: spools(folder) == [])
    assert service.http.get("/stats").json()["total_observations"] == 0


def test_a_disk_that_is_full_refuses_the_upload_also_one_that_was_in_memory(
    service: Service,
) -> None:
    service.save("Before.")
    for path, limit, size in (
        ("/import", MEBIBYTE * 3 // 2, LIMIT), ("/sessions/s1/end", MEBIBYTE * 3 // 2, LIMIT),
        ("/import", MEBIBYTE // 2, MEBIBYTE * 3 // 4),
    ):  # fmt: skip
        with file_size_limit(limit):
            answer = service.http.post(path, content=document(size))

        assert answer.status_code == 503
        assert answer.json() == {"error": "The disk cannot hold the body; nothing was stored."}
        assert spools(service.path.parent) == []


@pytest.mark.slow
def test_the_memory_of_a_large_import_and_export_is_bounded(path: Path) -> None:
    rows, size = 10_000, 12_000_000
    with served(path, within=ANEW, TMPDIR="/nowhere") as (program, http):
        http.post("/import", content=b"".join(large_document(10)))
        http.get("/export")
        before = peak(program)

        with answering(http) as answers:
            counts = http.post("/import", content=large_document(rows)).json()
        with http.stream("GET", "/export") as answer:
            exported = sum(len(chunk) for chunk in answer.iter_raw())

        assert counts == {"imported_sessions": 0, "imported_observations": rows - 10}
        assert exported > size
        assert peak(program) - before < 32 * MEBIBYTE
        assert len(answers) > 5  # if the import held the loop: one before it, one after


def large_document(rows: int) -> Iterator[bytes]:
    yield b'{"observations": ['
    for number in range(rows):
        uid = f"01900000-0000-7000-8000-{number:012}"
        row = observation("the same words again " * 50, title=f"Row {number}", uid=uid)
        yield (b"," if number else b"") + json.dumps(row).encode()
    yield b"]}"


def peak(program: Program) -> int:
    """The most memory that the process has had, in bytes."""
    lines = Path(f"/proc/{program.pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


@contextmanager
def answering(http: httpx.Client) -> Iterator[list[int]]:
    """The statuses of /health, which is asked again and again meanwhile."""
    answers: list[int] = []
    over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=http.base_url, timeout=60, verify=PLAIN) as own:
            while not over.wait(0.02):
                answers.append(own.get("/health").status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    yield answers
    over.set()
    asking.join()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond the size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
