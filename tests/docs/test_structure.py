"""The sources in figures: what is counted, and which cycles are seen."""

from functools import cache

import pytest
from benchmarks import CLIENT, SERVICE
from benchmarks.structure import budget
from benchmarks.structure.__main__ import LONG
from benchmarks.structure.imports import by_folder, by_module, cycles
from benchmarks.structure.sources import Module, modules

SLACK = 0.01  # of a figure, below which its ceiling need not be lowered


@cache
def ours() -> list[Module]:
    """The modules of both packages, read once."""
    return modules(SERVICE, CLIENT)


# An engine's promises name what memory has, and that is written against them.
CYCLES = {
    "agentops_memory/engine agentops_memory/memory agentops_memory/recall",
}


@pytest.mark.slow
def test_no_module_of_ours_imports_itself_through_others() -> None:
    assert cycles(by_module(ours())) == []


@pytest.mark.slow
def test_folders_that_import_each_other_become_no_more() -> None:
    assert {" ".join(it) for it in cycles(by_folder(ours()))} <= CYCLES


def test_no_file_of_ours_is_too_long_to_read() -> None:
    assert [it.path for it in ours() if it.lines > LONG] == []


@pytest.mark.slow
def test_the_sources_keep_to_their_budget() -> None:
    """A figure that fell takes its ceiling along: lower it in `benchmarks/structure/budget.py`."""
    rows = budget.rows(ours())

    assert [row for row in rows if row.figure > row.ceiling] == []
    assert [row for row in rows if row.figure < row.ceiling * (1 - SLACK)] == []
