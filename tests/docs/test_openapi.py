"""The service's description of itself is valid, complete, and true."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from agentops_memory import __version__
from agentops_memory.compose import opened
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry

from ..support.service import Clock, Service
from ..support.service import lasting as service

__all__ = ["service"]

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance",
)  # fmt: skip

# All but the one of routes that find nothing: no client can guess the id of a receipt.
WARNINGS = "missing_auth,validation_mismatch,missing_deserializer,unsupported_regex"

# What a client of agents' memory knows. No schema says that an entry which is not semantic is of
# some agent, that a list of agents names none of them twice, or which entry there is; nor that an
# entry of a ref has one kind of end, still to come, which runs and entries it may name, and that a
# branch begins at an event.
KNOWN = """
[parameters]
"header.X-Agent-ID" = "ada"
"header.If-Match" = '"1"'
"path.agent" = "ada"

[[operations]]
include-path = [
    "/api/v1/memory",
    "/api/v1/memory/batch",
    "/api/v1/memory/namespaces/{namespace}",
    "/api/v1/memory/{entry_id}",
    "/v1/host/agentops-memory/memory",
    "/v1/host/agentops-memory/commitments",
    "/v1/host/agentops-memory/compact",
    "/v1/host/agentops-memory/distill",
    "/v1/host/agentops-memory/index",
    "/v1/host/agentops-memory/runs/{runId}/fork",
]
warnings = false
"""


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


def test_it_has_a_version_and_names_every_operation(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"] == {"title": "agentops-memory", "version": __version__}

    names = [operation["operationId"] for operation in operations(document).values()]

    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in operations(document).values())


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
def test_it_is_valid_openapi_and_what_is_not_would_be_noticed(document: dict[str, Any]) -> None:
    schemathesis.openapi.from_dict(document).validate()

    broken = document | {"paths": {"/health": {"get": {"responses": {"200": {}}}}}}

    with pytest.raises(Exception, match="description"):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_reference_is_met_and_every_schema_referred_to(document: dict[str, Any]) -> None:
    referred = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)))
    defined = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert referred == defined


PROBLEMS = {
    "/anthropic/": "AnthropicProblem", "/api/v1/cloud/": "StoreProblem",
    "/api/v1/": "AgentMemoryProblem", "/v1/": "OpenWopProblem", "/": "Problem",
}  # fmt: skip


def test_every_refusal_is_a_problem_of_its_protocol(document: dict[str, Any]) -> None:
    for (_, path), operation in operations(document).items():
        problem = next(PROBLEMS[prefix] for prefix in PROBLEMS if path.startswith(prefix))
        schema = {"schema": {"$ref": f"#/components/schemas/{problem}"}}
        refusals = {status: a for status, a in operation["responses"].items() if int(status) >= 400}
        assert all(a["content"] == {"application/json": schema} for a in refusals.values()), path


def test_a_parameter_says_which_texts_it_takes(document: dict[str, Any]) -> None:
    chosen = {
        (parameter["name"], *parameter["schema"]["enum"])
        for operation in operations(document).values()
        for parameter in operation.get("parameters", ())
        if "enum" in parameter["schema"]
    }

    assert ("view", "basic", "full") in chosen
    assert ("operation", "created", "modified", "deleted") in chosen


MEMORY_STORES = ("/anthropic/", "/api/v1/cloud/")


def test_a_body_over_its_limit_is_413_but_to_memory_stores(document: dict[str, Any]) -> None:
    written = {
        path: operation["responses"].keys()
        for (_, path), operation in operations(document).items()
        if "Idempotency-Key" in {each["name"] for each in operation["parameters"]}
    }

    with_413 = {path for path, statuses in written.items() if "413" in statuses}
    assert with_413 == {path for path in written if not path.startswith(MEMORY_STORES)}
    assert all("400" in statuses for statuses in written.values())


def test_every_answer_about_memory_stores_names_its_request(document: dict[str, Any]) -> None:
    names = {"/anthropic/": "request-id", "/api/v1/cloud/": "X-Request-Id"}
    for (_, path), operation in operations(document).items():
        for answer in operation["responses"].values():
            named = [name for name in names.values() if name in answer.get("headers", ())]
            assert named == [names[prefix] for prefix in names if path.startswith(prefix)], path


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


@pytest.mark.heavy
def test_a_generated_client_finds_the_service_as_described(
    service: Service, tmp_path: Path
) -> None:
    service.save("There is something to find.")
    (tmp_path / "schemathesis.toml").write_text(KNOWN)

    run = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json",
            "--checks", ",".join(CHECKS), "--phases", "coverage",
            "--generation-deterministic", "--warnings", WARNINGS,
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert run.returncode == 0, run.stdout
    assert "No issues found" in run.stdout, run.stdout
