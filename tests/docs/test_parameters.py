"""The parameters of AgentOps REST: docs/api.md, the description and the routes name the same."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.agentops.operations import AgentOps
from agentops_memory.errors import Refusal
from agentops_memory.local import opened_here
from agentops_memory.memory.access import OPERATOR, Caller
from agentops_memory.recall.summary import Message
from agentops_memory.settings.settings import settings
from agentops_memory.telemetry import Telemetry

from ..support.service import observation, serving
from .test_docs import ROOT

ROW = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \|(.*?)(?<!\\)\|(.*)\|$", re.MULTILINE)
NAME = re.compile(r"`\??(\w+)")
BODY_ELSEWHERE = {("POST", "/import")}  # which takes "such a document"

# What a route reads on a condition is read with these, and with any body that it takes.
QUERY = {"episodic": ["true"], "agent": ["ada"], "hard": ["true"], "observation_id": ["1"]}
BODY = observation("One.", id="s1", messages=[], revision=1)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as service:
        answer: dict[str, Any] = service.http.get("/openapi.json").json()
        return answer


def query_of(operation: Mapping[str, Any]) -> set[str]:
    return {it["name"] for it in operation.get("parameters", ()) if it["in"] == "query"}


def fields_of(described: Mapping[str, Any], operation: Mapping[str, Any]) -> set[str]:
    if "requestBody" not in operation:
        return set()
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    model = described["components"]["schemas"][reference.rpartition("/")[2]]
    return set(model["properties"])


@pytest.mark.slow
def test_a_table_names_the_parameters_of_its_routes(described: dict[str, Any]) -> None:
    rows = ROW.findall((ROOT / "docs" / "api.md").read_text("utf-8"))
    assert len(rows) > 20

    for method, path, takes, _ in rows:
        operation = described["paths"][path][method.lower()]
        query, fields = query_of(operation), fields_of(described, operation)
        in_body = set() if (method, path) in BODY_ELSEWHERE else fields
        assert set(NAME.findall(takes)) == query | in_body, (method, path)


@dataclass(frozen=True)
class Asked:
    """A question of which is known what its operation has read."""

    query: "Read"
    path_params: Mapping[str, str] = field(default_factory=lambda: {"id": "1", "name": "demo"})

    def caller(self) -> Caller:
        return OPERATOR

    async def body(self) -> Mapping[str, object]:
        return BODY

    @asynccontextmanager
    async def transcript(self) -> AsyncIterator[Iterator[Message]]:
        yield iter(())

    async def writer(self) -> Caller:
        return OPERATOR


class Read(dict[str, list[str]]):
    """A query that notes which of its parameters are read."""

    def __init__(self) -> None:
        super().__init__(QUERY)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.slow
def test_a_route_reads_the_parameters_that_it_describes(
    described: dict[str, Any], tmp_path: Path
) -> None:
    told = {
        operation["operationId"]: query_of(operation)
        for methods in described["paths"].values()
        for operation in methods.values()
        if operation["tags"] == ["AgentOps REST"]
    }
    own = {name for name in told if hasattr(AgentOps, name)} - {"export"}  # which asks no question

    read = asyncio.run(_read(own, tmp_path))

    assert len(read) >= 17
    assert read == {name: told[name] for name in read}


async def _read(operations: set[str], folder: Path) -> dict[str, set[str]]:
    """By operation, the parameters that it reads."""
    chosen, read = settings({"MEMORY_DB_PATH": str(folder / "memory.db")}), {}
    async with opened_here(chosen, Telemetry.started(None)) as memories:
        for name in sorted(operations):
            asked = Asked(Read())
            with suppress(Refusal):
                await getattr(memories.agentops, name)(asked)
            read[name] = asked.query.names
    return read
