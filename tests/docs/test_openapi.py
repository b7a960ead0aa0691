"""The service's description of itself is valid, complete, and true."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from agentops_memory import __version__
from agentops_memory.compose import opened
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry

from ..support.service import Clock, Service, lasting_with
from .test_docs import ROOT, WITHOUT_SPAN

service = lasting_with()


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, Any]:
    answer = service.http.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    described: dict[str, Any] = answer.json()
    return described


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


async def routes(tmp_path: Path) -> set[tuple[str, str]]:
    chosen = settings({"MEMORY_DB_PATH": str(tmp_path / "memory.db")})
    async with opened(chosen, Telemetry.started(None), clock=Clock()) as application:
        return {
            (method, re.sub(r":\w+}", "}", route.path))
            for route in application.routes
            for method in (route.methods or set()) - {"HEAD"}
        }


def test_it_describes_every_route_and_no_other(document: dict[str, Any], tmp_path: Path) -> None:
    served = asyncio.run(routes(tmp_path))
    agents = {(method, path) for method, path in served if path.startswith("/mcp")}
    pages = {it for it in served if it[1].startswith(("/docs/", "/ui/")) or it[1] == "/ui"}

    assert operations(document).keys() == served - agents - pages
    assert agents == {  # which MCP describes by itself
        (method, path) for method in ("POST", "DELETE") for path in ("/mcp", "/mcp/{project}")
    }


@pytest.mark.slow
def test_it_is_valid_openapi_and_names_every_operation(document: dict[str, Any]) -> None:
    schemathesis.openapi.from_dict(document).validate()

    assert document["openapi"] == "3.1.0"
    assert document["info"] == {"title": "agentops-memory", "version": __version__}
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in operations(document).values())


def test_every_reference_is_met_and_every_schema_referred_to(document: dict[str, Any]) -> None:
    referred = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)))
    defined = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert referred == defined


PROBLEMS = {
    "/anthropic/": "AnthropicProblem", "/api/v1/cloud/": "StoreProblem",
    "/api/v1/": "AgentMemoryProblem", "/v1/": "OpenWopProblem", "/": "Problem",
}  # fmt: skip


MEMORY_STORES = ("/anthropic/", "/api/v1/cloud/")


def test_every_refusal_is_a_problem_of_its_protocol_and_an_answer_of_a_store_names_its_request(
    document: dict[str, Any],
) -> None:
    named = {"/anthropic/": "request-id", "/api/v1/cloud/": "X-Request-Id"}
    choices = set[tuple[str, ...]]()
    for (_, path), operation in operations(document).items():
        problem = next(PROBLEMS[prefix] for prefix in PROBLEMS if path.startswith(prefix))
        schema = {"schema": {"$ref": f"#/components/schemas/{problem}"}}
        for status, answer in operation["responses"].items():
            assert int(status) < 400 or answer["content"] == {"application/json": schema}, path
            headers = [it for it in named.values() if it in answer.get("headers", ())]
            assert headers == [named[prefix] for prefix in named if path.startswith(prefix)], path
        parameters = {it["name"]: it["schema"] for it in operation.get("parameters", ())}
        choices |= {(name, *it["enum"]) for name, it in parameters.items() if "enum" in it}
        if "Idempotency-Key" in parameters:
            is_of_a_store = path.startswith(MEMORY_STORES)
            assert ("413" in operation["responses"]) is not is_of_a_store, path
            assert "400" in operation["responses"]

    assert choices >= {("view", "basic", "full"), ("operation", "created", "modified", "deleted")}


def test_what_may_hold_secrets_says_how_many_it_held(document: dict[str, Any]) -> None:
    counting = {
        operation["operationId"]
        for (_, path), operation in operations(document).items()
        if path.startswith(MEMORY_STORES)
        for answer in operation["responses"].values()
        if "X-Redacted" in answer.get("headers", ())
    }

    assert counting == {
        "anthropic_create_store", "anthropic_update_store", "anthropic_create_memory",
        "anthropic_update_memory", "create_store", "create_entry", "update_entry",
    }  # fmt: skip


def test_a_limit_of_memory_stores_is_described(document: dict[str, Any]) -> None:
    schemas = {
        (path.split("/")[1], parameter["name"], json.dumps(parameter["schema"]))
        for (_, path), operation in operations(document).items()
        if path.startswith(MEMORY_STORES)
        for parameter in operation["parameters"]
    }
    times = '{"type": "string", "format": "date-time"}'
    assert ("anthropic", "limit", '{"type": "integer", "minimum": 1, "maximum": 100}') in schemas
    assert ("api", "limit", '{"type": "integer", "minimum": 1}') in schemas
    for end in ("gte", "lte"):
        assert {s for _, name, s in schemas if name == f"created_at[{end}]"} == {times}

    most = {
        name: json.dumps(model["properties"]["metadata"]).count(f'"maxProperties": {most}')
        for name, most in [("AnthropicStoreBody", 16), ("AnthropicStoreChange", 32),
                           ("StoreBody", 16), ("EntryBody", 16), ("EntryChangeBody", 16)]
        for model in [document["components"]["schemas"][name]]
    }  # fmt: skip
    assert set(most.values()) == {1}, most


def query_of(operation: dict[str, Any]) -> set[str]:
    return {it["name"] for it in operation.get("parameters", ()) if it["in"] == "query"}


def fields_of(document: dict[str, Any], operation: dict[str, Any]) -> set[str]:
    if "requestBody" not in operation:
        return set()
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return set(document["components"]["schemas"][reference.rpartition("/")[2]]["properties"])


ROW = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \|(.*?)(?<!\\)\|(.*)\|$", re.MULTILINE)
BODY_ELSEWHERE = {("POST", "/import")}  # which takes "such a document"


@pytest.mark.slow
def test_a_table_names_the_parameters_of_its_routes(document: dict[str, Any]) -> None:
    rows = ROW.findall((ROOT / "docs" / "api.md").read_text("utf-8"))
    assert len(rows) > 20

    for method, path, takes, _ in rows:
        operation = operations(document)[method, path]
        in_body = set() if (method, path) in BODY_ELSEWHERE else fields_of(document, operation)
        assert set(re.findall(r"`\??(\w+)", takes)) == query_of(operation) | in_body, (method, path)


BODIES = (
    "ObservationBody", "StoreBody", "EntryBody", "EntryChangeBody", "AgentEntryBody",
    "RefEntryBody", "RunBody", "RunSecretBody", "RunForkBody", "RunEndBody", "ProposalBody",
    "ProposalChangeBody", "ProposalSources", "CommitmentBody",
)  # fmt: skip


def test_every_route_parameter_field_and_span_is_documented(document: dict[str, Any]) -> None:
    text = "".join(
        (ROOT / "docs" / f"{name}.md").read_text("utf-8")
        for name in ("api", "memory-stores", "anthropic", "openintent", "openwop")
    )
    telemetry = (ROOT / "docs" / "telemetry.md").read_text("utf-8")
    every = operations(document)

    assert [route for route in every if f"`{' '.join(route)}" not in text] == []
    names = set().union(*map(query_of, every.values()))
    for body in BODIES:
        names |= set(document["components"]["schemas"][body]["properties"])
    assert [name for name in sorted(names) if f"`{name}" not in text] == []
    spans = {operation["operationId"] for operation in every.values()} - WITHOUT_SPAN
    assert [it for it in sorted(spans) if f"`memory.{it}`" not in telemetry] == []
