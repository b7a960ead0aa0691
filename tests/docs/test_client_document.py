"""The guide to the client tells the truth: its programs run, and every method is in it."""

import inspect
import re
from pathlib import Path

import pytest

import agentops_memory_client as package
from agentops_memory_client import AsyncMemoryClient, MemoryClient, MemoryServiceError

from ..support.programs import assert_programs_print
from ..support.service import serving
from .test_docs import ROOT

README, GUIDE = ROOT / "README.md", ROOT / "docs" / "client.md"


@pytest.mark.parametrize("document", [README, GUIDE], ids=lambda path: path.name)
def test_the_programs_of_a_document_print_what_they_say(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path / "memory.db") as service:
        assert_programs_print(document, service.url, capsys)


def test_every_method_and_parameter_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)\((.*?)\)`", GUIDE.read_text("utf-8"), re.MULTILINE)

    def shown(method: object) -> str:
        signature = inspect.signature(method)  # type: ignore[arg-type]
        kept = [it for it in signature.parameters.values() if it.name != "idempotency_key"]
        plain = [it.replace(annotation=it.empty) for it in kept[1:]]
        return str(inspect.Signature(plain))[1:-1].replace("'", '"')

    for client in (MemoryClient, AsyncMemoryClient):
        public = {
            name: shown(method)
            for name, method in inspect.getmembers(client, inspect.isfunction)
            if not name.startswith("_")
        }
        told = dict(rows) | ({"aclose": ""} if client is AsyncMemoryClient else {"close": ""})
        if client is AsyncMemoryClient:
            del told["close"]
        assert public == told


def test_every_write_takes_a_key_as_the_guide_says() -> None:
    takes = {
        name
        for name, method in inspect.getmembers(MemoryClient, inspect.isfunction)
        if "idempotency_key" in inspect.signature(method).parameters
    }

    assert takes == {
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
