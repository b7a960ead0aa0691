"""Stems in the file that are not those of the texts: no error, and the doctor mends them."""

from contextlib import closing
from pathlib import Path

import pytest

from agentops_memory.memory.memory import MemoryId
from agentops_memory.recall.stems import Entry
from agentops_memory.sqlite import search
from agentops_memory.sqlite.connection import connect

from ..support.engines import rows
from ..support.fast_reads import LONG_WAY, Counted, counted, held
from ..support.process import run, until
from ..support.service import serving

__all__ = ["counted"]

SEARCH, CONTEXT = "/search?project=heron&q=rollback", "/context?project=heron&query=rollback"
TAMPERED = {
    "of another text": "UPDATE memory_stems SET stems = '1 stork' WHERE memory_id = 1",
    "as many, but others": "UPDATE memory_stems SET stems = replace(stems, 'rollback', 'zzz')",
    "none": "UPDATE memory_stems SET stems = ''",
    "a number that is none": "UPDATE memory_stems SET stems = 'xyz rollback'",
    "a number below zero": "UPDATE memory_stems SET stems = '-1 rollback'",
    "a number beyond all": "UPDATE memory_stems SET stems = '" + "f" * 90 + " rollback'",
    "twice": "UPDATE memory_stems SET stems = stems || char(10) || stems",
    "only separators": "UPDATE memory_stems SET stems = char(10) || '   ' || char(10)",
    "no UTF-8": "UPDATE memory_stems SET stems = CAST(x'31206fff' AS TEXT)",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with three memories of a project."""
    file = tmp_path / "memory.db"
    with serving(file) as service:
        for number, text in enumerate(("rollback worker", "rollback queue", "retry timeout")):
            service.save(text, project="heron", title=f"t{number}")
    return file


def changed(path: Path, statement: str) -> None:
    with closing(connect(path)) as database:
        database.execute(statement)


@pytest.mark.heavy
@pytest.mark.parametrize("name", TAMPERED)
def test_stems_that_were_tampered_with_cause_no_error_and_are_mended(
    path: Path, counted: Counted, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        for _ in range(30):  # until they are loaded, and stored
            truth = [service.http.get(it).content for it in (SEARCH, CONTEXT)]
        until(lambda: len(rows(path, "SELECT * FROM memory_stems")) == 3)
    changed(path, TAMPERED[name])

    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        for _ in range(30):
            for it in (SEARCH, CONTEXT):
                assert service.http.get(it).status_code == 200
    assert [it for it in caplog.records if it.exc_info] == []

    found = run("doctor", "--thorough", "--db", str(path))
    assert "has words that differ from those of the memories" in found.stdout
    run("doctor", "--thorough", "--fix", "--db", str(path))
    assert "has words that differ" not in run("doctor", "--thorough", "--db", str(path)).stdout
    with serving(path) as service:
        for it, answer in zip((SEARCH, CONTEXT), truth, strict=True):
            assert held(service, counted, it).content == answer
            assert service.http.get(it, headers=LONG_WAY).content == answer


@pytest.mark.slow
@pytest.mark.representative(3)
@pytest.mark.parametrize("most", [0, 2, 3])
@pytest.mark.parametrize("stored", [0, 1, 3])
def test_typos_are_found_without_making_stems_however_many_are_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch, stored: int, most: int
) -> None:
    made: list[object] = []

    def entries_of(_: object, documents: object) -> dict[MemoryId, Entry]:
        made.append(documents)
        return {}

    monkeypatch.setattr(search, "MOST_READ", most)
    monkeypatch.setattr(search, "entries_of", entries_of)
    changed(path, f"DELETE FROM memory_stems WHERE memory_id > {stored}")

    with serving(path, MEMORY_SWEEP_EVERY="0", MEMORY_INDEX_CACHE="0") as service:
        hits = service.http.get("/search?project=heron&q=rolback").json()

    assert {1, 2} <= {it["id"] for it in hits}
    assert made == []
