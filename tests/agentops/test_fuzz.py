"""The fuzzing run: each kind of worker is answered, and the report says what is wrong."""

from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_short_run_reaches_every_route_and_finds_nothing_wrong(tmp_path: Path) -> None:
    from ..fuzz.__main__ import fuzzed  # noqa: PLC0415 - schemathesis takes a second to load

    report = fuzzed(tmp_path, 4, seed=1, kinds=("known", "agents", "wild"))

    assert report.is_good, "\n".join(report.lines())
    assert report.counted.total() > 100
