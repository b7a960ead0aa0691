"""The guide to the runtime kit tells the truth: its programs run."""

import re
from pathlib import Path

import pytest

from agentops_memory.runtime import WorkingMemory

from .programs import assert_programs_print
from .service import serving
from .test_docs import ROOT

GUIDE = ROOT / "docs" / "runtime.md"


def test_the_programs_of_the_guide_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path / "memory.db") as service:
        assert_programs_print(GUIDE, service.url, capsys)


def test_all_of_a_working_memory_is_in_the_guide() -> None:
    public = {name for name in dir(WorkingMemory) if not name.startswith("_")}
    told = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", GUIDE.read_text("utf-8")))

    assert public - told == set()
