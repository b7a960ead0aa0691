"""The trace of a request: what counts as a call, and what a trace tells."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks.calls.__main__ import BUDGET, main
from benchmarks.calls.profiled import Call, Recorder
from benchmarks.calls.tracing import Trace

CALLED = """
import asyncio

def numbers():
    yield from [number for number in (1, 2, 3)]

async def rested():
    await asyncio.sleep(0)
    await asyncio.sleep(0)

def passed_on(work):
    return list(map(work, "ab"))
"""
CALLING = """
import called

def all_at_once():
    return called.passed_on(once)

def once(letter):
    return letter

def waiting(begin):
    begin()
    all_at_once()
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two modules, `calling` and `called`, which can be imported."""
    for name, text in (("called", CALLED), ("calling", CALLING)):
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("called", "calling"):
        sys.modules.pop(name, None)


def recorded(folder: Path, work: Callable[[], object]) -> list[tuple[str, str, str | None]]:
    """The calls of some work: the file, the name of the function, the file of the caller."""
    recorder, before = Recorder(f"{folder}/"), sys.getprofile()
    recorder.begin()
    sys.setprofile(recorder)
    try:
        work()
    finally:
        sys.setprofile(before)
    return [(file, function.split(":")[-1], caller) for file, function, caller in recorder.end()]


def imported(name: str) -> ModuleType:
    return __import__(name)


def test_what_goes_on_is_one_call_and_a_comprehension_none(sources: Path) -> None:
    called = imported("called")

    generated = recorded(sources, lambda: list(called.numbers()))
    awaited = recorded(sources, lambda: asyncio.run(called.rested()))

    assert generated == [("called.py", "numbers", None)]
    assert awaited == [("called.py", "rested", None)]


def test_a_caller_is_seen_through_a_library(sources: Path) -> None:
    calls = recorded(sources, imported("calling").all_at_once)

    assert calls == [
        ("calling.py", "all_at_once", None), ("called.py", "passed_on", "calling.py"),
        ("calling.py", "once", "called.py"), ("calling.py", "once", "called.py"),
    ]  # fmt: skip


def test_what_is_asked_before_or_after_does_not_count(sources: Path) -> None:
    calling, recorder = imported("calling"), Recorder(f"{sources}/")

    sys.setprofile(recorder)
    calling.all_at_once()
    sys.setprofile(None)

    assert recorder.end() == []


def test_a_trace_tells_of_calls_functions_files_and_changes() -> None:
    calls: list[Call] = [
        ("a.py", "a.py:1:f", None), ("b.py", "b.py:1:g", "a.py"), ("b.py", "b.py:5:h", "b.py"),
        ("b.py", "b.py:1:g", "a.py"), ("a.py", "a.py:9:i", "b.py"),
    ]  # fmt: skip

    trace = Trace(calls)

    assert (trace.functions, trace.changes) == (4, 3)
    assert [*trace.files.items()] == [("a.py", 2), ("b.py", 3)]


def test_what_waits_already_when_a_request_comes_is_no_caller(sources: Path) -> None:
    calling, recorder = imported("calling"), Recorder(f"{sources}/")

    sys.setprofile(recorder)
    calling.waiting(recorder.begin)
    sys.setprofile(None)

    callers = [caller for _, _, caller in recorder.end()]
    assert callers == [None, "calling.py", "called.py", "called.py"]


@pytest.mark.slow
def test_each_request_of_the_service_has_a_row_and_its_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.calls", "--files"])

    main()

    head, *lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if not line.startswith(" ")]
    files = [line.split() for line in lines if line.startswith(" ")]
    figures = {row[:36].rstrip(): row[36:].split() for row in rows}
    assert head.split()[:4] == ["request", "calls", "functions", "files"]
    assert len(figures) == 8
    assert sum(int(calls) for calls, *_ in figures.values()) == sum(int(it) for it, _ in files)
    assert sum(int(passed) for _, _, passed, *_ in figures.values()) == len(files)
    assert all(file.removeprefix("client/").startswith("agentops_memory") for _, file in files)
    assert [name for name, (most, _) in BUDGET.items() if int(figures[name][2]) > most] == []
