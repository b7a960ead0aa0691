"""The fuzzing run: each kind of worker is answered, and the report says what is wrong."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ..fuzz.report import Report
from ..fuzz.tally import Tally
from ..support.samples import for_each

FINE = Report(
    seconds=600, seed=7, tally=Tally(),
    counted=Counter({("GET", "/health", "200"): 1200, ("GET", "/stats", "507"): 2}),
    routes=[("GET", "/health"), ("GET", "/stats")], memory=(80, 90), exit_code=0, held="3 memories",
)  # fmt: skip


def test_the_report_is_one_table() -> None:
    assert FINE.is_good
    assert [*FINE.lines()] == [
        "requests                 1,202 in 600 s, seed 7", "  2xx                    1,200",
        "  507                    2", "routes                   2", "  never reached          0",
        "500s                     0", "hangs                    0", "connections lost         0",
        "answers not as described 0", "memory                   80 MiB at the start, 90 at the end",
        "exit code                0", "files                    0 faults; 3 memories",
    ]  # fmt: skip


@for_each(
    "wrong",
    [
        replace(FINE, tally=Tally(failures=["curl /health"])),
        replace(FINE, tally=Tally(hangs=["curl /health"])),
        replace(FINE, tally=Tally(lost=["curl /health"])),
        replace(FINE, tally=Tally(untrue=["no such status"])),
        replace(FINE, routes=[("GET", "/health"), ("GET", "/docs")]),
        replace(FINE, memory=(80, 190)),
        replace(FINE, exit_code=1),
        replace(FINE, faults=["memory.db: the index is not exact"]),
    ],
)
def test_whatever_is_wrong_fails_the_run_and_is_told(wrong: Report) -> None:
    assert not wrong.is_good
    assert [*wrong.lines()] != [*FINE.lines()]


@pytest.mark.slow
def test_a_short_run_reaches_every_route_and_finds_nothing_wrong(tmp_path: Path) -> None:
    from ..fuzz.__main__ import fuzzed  # noqa: PLC0415 - schemathesis takes a second to load

    report = fuzzed(tmp_path, 4, seed=1, kinds=("known", "agents", "wild"))

    assert report.is_good, "\n".join(report.lines())
    assert report.counted.total() > 100
