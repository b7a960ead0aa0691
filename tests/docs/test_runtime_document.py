"""The guide to the runtime kit tells the truth: its programs run."""

import inspect
import re
import runpy
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


def test_the_example_of_a_blocking_loop_is_a_session_with_memories(
    monkeypatch: pytest.MonkeyPatch, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(path) as service:
        service.save("The payment provider needs up to 12 s.", project="shop")
        monkeypatch.setenv("MEMORY_URL", service.url)

        runpy.run_path(str(GUIDE.parent / "examples" / "blocking.py"))

    printed = capsys.readouterr().out
    assert "The payment provider needs up to 12 s.\n</memory:context>" in printed
    assert "Session: 2 messages (1 user, 1 assistant)." in printed


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
