"""The calls of each request keep to their budget."""

import sys

import pytest
from benchmarks.calls.__main__ import BUDGET, main


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
