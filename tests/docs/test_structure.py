"""The sources in figures: cycles, lengths, budgets, and the calls of a request."""

import sys

import pytest
from benchmarks.calls.__main__ import BUDGET, main
from benchmarks.structure import budget
from benchmarks.structure.__main__ import LONG
from benchmarks.structure.imports import by_folder, by_module, cycles

from .test_architecture import modules

pytestmark = pytest.mark.slow

# An engine's promises name what memory has, and that is written against them.
CYCLES = {"agentops_memory/engine agentops_memory/memory agentops_memory/recall"}
SLACK = 0.01  # of a figure, below which its ceiling need not be lowered


def test_no_module_imports_itself_through_others_and_folders_that_do_become_no_more() -> None:
    every = list(modules().values())

    assert cycles(by_module(every)) == []
    assert {" ".join(it) for it in cycles(by_folder(every))} <= CYCLES


def test_the_sources_keep_to_their_budget_and_no_file_is_too_long_to_read() -> None:
    """A figure that fell takes its ceiling along: lower it in `benchmarks/structure/budget.py`."""
    every = list(modules().values())
    rows = budget.rows(every)

    assert [it.path for it in every if it.lines > LONG] == []
    assert [row for row in rows if row.figure > row.ceiling] == []
    assert [row for row in rows if row.figure < row.ceiling * (1 - SLACK)] == []


def test_each_request_of_the_service_keeps_to_its_budget_of_files(
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
