"""The guide to the runtime kit tells the truth: its programs run."""

import inspect
import re
from pathlib import Path

import pytest

from agentops_memory_client.runtime import Lost, MemorySession, Report, ToolHooks, WorkingMemory

from ..support.programs import assert_programs_print
from ..support.samples import for_each
from ..support.service import serving
from .test_docs import ROOT

GUIDE = ROOT / "docs" / "runtime.md"


def test_the_programs_of_the_guide_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path / "memory.db") as service:
        assert_programs_print(GUIDE, service.url, capsys)


@for_each("kind", [WorkingMemory, MemorySession, Report, Lost, ToolHooks])
def test_all_of_it_is_in_the_guide(kind: type) -> None:
    public = {name for name in [*dir(kind), *kind.__annotations__] if not name.startswith("_")}
    chosen = inspect.signature(kind).parameters.keys() if kind is MemorySession else set()
    told = re.sub(r"memory\.|await ", "", GUIDE.read_text("utf-8"))

    assert (public | chosen) - set(re.findall(r"`(\w+)(?:[(: ][^`]*)?`", told)) == set()


def test_every_span_is_in_the_guide() -> None:
    source = ROOT / "service" / "client" / "agentops_memory_client" / "runtime"
    text = "".join(path.read_text("utf-8") for path in source.glob("*.py"))
    spans = set(re.findall(r'"(runtime\.\w+)"', text))
    attributes = set(re.findall(r'"((?:memory|gen_ai)\.[\w.]+)"', text))
    assert spans
    assert attributes
    guide = GUIDE.read_text("utf-8")
    assert {it for it in spans if f"`{it}`" not in guide} == set()
    assert {it for it in attributes if f"`.{it.split('.')[-1]}`" not in guide} - set(
        re.findall(r"`([\w.]+)`", guide)
    ) == set()
