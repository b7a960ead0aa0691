"""The guides to the client and to the runtime kit: their programs run, and nothing is left out."""

import inspect
import re
import runpy
from html import unescape
from itertools import groupby
from pathlib import Path

import pytest

import agentops_memory_client as package
from agentops_memory_client import AsyncMemoryClient, MemoryClient, MemoryServiceError
from agentops_memory_client.runtime import Lost, MemorySession, Report, ToolHooks, WorkingMemory

from ..support.samples import for_each
from ..support.service import Service, serving
from .recording import FILE, recorded
from .test_docs import ROOT, as_pattern, blocks

GUIDE, RUNTIME = ROOT / "docs" / "client.md", ROOT / "docs" / "runtime.md"
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("document", [ROOT / "README.md", GUIDE, RUNTIME], ids=lambda it: it.name)
def test_the_programs_of_a_document_print_what_they_say(
    document: Path, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    programs = blocks(document, "python")
    assert programs
    for program in programs:
        here = program.replace("MemoryClient()", f"MemoryClient({service.url!r})")
        capsys.readouterr()
        exec(compile(here, document.name, "exec"), {})  # noqa: S102 - that is what it is for

        printed = [line for line, _ in groupby(capsys.readouterr().out.splitlines())]
        assert printed
        for line, pattern in zip(printed, PRINTED.findall(program), strict=True):
            assert re.fullmatch(as_pattern(pattern), line), line


def test_the_example_of_a_blocking_loop_is_a_session_with_memories(
    monkeypatch: pytest.MonkeyPatch, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(path) as service:
        service.save("The payment provider needs up to 12 s.", project="shop")
        monkeypatch.setenv("MEMORY_URL", service.url)

        runpy.run_path(str(ROOT / "docs" / "examples" / "blocking.py"))

    printed = capsys.readouterr().out
    assert "The payment provider needs up to 12 s.\n</memory:context>" in printed
    assert "Session: 2 messages (1 user, 1 assistant)." in printed


def test_every_method_and_parameter_is_in_the_table_and_every_write_takes_a_key() -> None:
    table = dict(re.findall(r"^\| `(\w+)\((.*?)\)`", GUIDE.read_text("utf-8"), re.MULTILINE))

    def shown(method: object) -> str:
        signature = inspect.signature(method)  # type: ignore[arg-type]
        kept = [it for it in signature.parameters.values() if it.name != "idempotency_key"]
        plain = [it.replace(annotation=it.empty) for it in kept[1:]]
        return str(inspect.Signature(plain))[1:-1].replace("'", '"')

    for client, close in ((MemoryClient, "close"), (AsyncMemoryClient, "aclose")):
        public = {
            name: method
            for name, method in inspect.getmembers(client, inspect.isfunction)
            if not name.startswith("_")
        }
        of_both = {name: it for name, it in table.items() if name != "close"}
        assert {name: shown(it) for name, it in public.items()} == of_both | {close: ""}
        parameters = {it: inspect.signature(method).parameters for it, method in public.items()}
        assert {name for name, it in parameters.items() if "idempotency_key" in it} == {
            "save", "update", "confirm", "restore", "delete", "start_session", "append_messages",
            "end_session",
        }  # fmt: skip


def test_every_error_and_argument_is_in_the_guide() -> None:
    text = GUIDE.read_text("utf-8")
    errors = {
        name
        for name, it in vars(package).items()
        if inspect.isclass(it) and issubclass(it, MemoryServiceError)
    }
    arguments = set(inspect.signature(MemoryClient).parameters)

    assert errors <= set(package.__all__)
    assert {name for name in errors | arguments if f"`{name}`" not in text} == set()


@for_each("kind", [WorkingMemory, MemorySession, Report, Lost, ToolHooks])
def test_all_of_the_runtime_kit_is_in_its_guide(kind: type) -> None:
    public = {name for name in [*dir(kind), *kind.__annotations__] if not name.startswith("_")}
    chosen = inspect.signature(kind).parameters.keys() if kind is MemorySession else set()
    told = re.sub(r"memory\.|await ", "", RUNTIME.read_text("utf-8"))

    assert (public | chosen) - set(re.findall(r"`(\w+)(?:[(: ][^`]*)?`", told)) == set()


def test_every_span_of_the_runtime_kit_is_in_its_guide() -> None:
    source = ROOT / "service" / "client" / "agentops_memory_client" / "runtime"
    text = "".join(path.read_text("utf-8") for path in source.glob("*.py"))
    spans = set(re.findall(r'"(runtime\.\w+)"', text))
    attributes = set(re.findall(r'"((?:memory|gen_ai)\.[\w.]+)"', text))
    assert spans
    assert attributes
    guide = RUNTIME.read_text("utf-8")
    assert {it for it in spans if f"`{it}`" not in guide} == set()
    told = set(re.findall(r"`([\w.]+)`", guide))
    assert {it for it in attributes if f"`.{it.split('.')[-1]}`" not in guide} - told == set()


@pytest.mark.slow
def test_the_picture_of_a_terminal_shows_what_the_commands_print_now() -> None:
    rows = re.findall(r"<text[^>]*>([^<]*)</text>", FILE.read_text("utf-8"))
    shown = "".join(unescape("".join(rows)).split())

    for line in recorded().export_text().splitlines():
        assert "".join(line.split()) in shown, line
