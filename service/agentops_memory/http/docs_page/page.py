"""The OpenAPI document as a page, which loads nothing from anywhere."""

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlencode

from .markup import Markup, Schema, code, fields, joined, link, name_of, need, prose, row, tag, told

Known = Mapping[str, tuple[object, ...]]

ADDRESS = "127.0.0.1:7437"  # where a service listens unless told; nothing is taken from a request
KEY = '-H "Authorization: Bearer $KEY"'
AGENT = "X-Agent-ID"
HEADERS = {AGENT: "example-agent", "If-Match": "1"}  # of those that are needed, and the agent

# Nobody's, so that what is sent as it stands changes nothing that matters.
SESSION, PROJECT, OBSERVATION = "example-session", "example", 123456789

# An id, by the collection that it is of; or a name, by its parameter.
IDS = {
    "sessions": SESSION,
    "observations": str(OBSERVATION),
    "projects": PROJECT,
    "erasures": "01977420-7c00-7000-8000-000000000001",
    "agents": "example-agent",
    "memory": "mem_019774207c0070008000000000000005",
    "memoryId": "mem_019774207c0070008000000000000005",
    "runs": "run_019774207c007000800000000000000a",
    "passes": "run_019774207c007000800000000000000d",
    "proposals": "prop_019774207c007000800000000000000b",
    "artifacts": "installed:agent-pack:prop_019774207c007000800000000000000c:00c0ffee00c0ffee",
    "commitments": "cmt_019774207c007000800000000000000e",
    "intents": "intent_019774207c0070008000000000000006",
    "tasks": "task_019774207c0070008000000000000007",
    "coordinators": "coord_019774207c0070008000000000000008",
    "entries": "grant_019774207c0070008000000000000009",
    "namespace": "example",
    "key": "example-key",
    "memory_stores": "memstore_019774207c0070008000000000000001",
    "memories": "mem_019774207c0070008000000000000002",
    "versions": "memver_019774207c0070008000000000000003",
    "memory_versions": "memver_019774207c0070008000000000000003",
}

# By the names of parameters and of fields: the first that the schema takes is asked for or sent.
# Whatever else is optional is left out.
ASKED: Known = {
    "project": (PROJECT,),
    "q": ("queue",),
    "query": ("Why is the queue full?",),
    "observation_id": (OBSERVATION,),
    "namespace": ("example",),
    "memoryRef": ("mem://notes",),
}
SENT: Known = {
    "subject": ("mem://notes",),
    "memoryId": (IDS["memoryId"],),
    "dueAt": ("2099-01-01T00:00:00Z",),
    "id": (SESSION,),
    "session_id": (SESSION,),
    "project": (PROJECT,),
    "type": ("decision",),
    "title": ("Queue",),
    "content": ("Orders go through a queue.",),
    "topic_key": ("shop/queue",),
    "messages": (),
    "role": ("user",),
    "observations": (),
    "name": ("Team notes",),
    "agent_id": ("example-agent",),
    "principal_id": ("another-agent",),
    "intent_id": (IDS["intents"],),
    "namespace": ("example",),
    "default": ("none",),
    "secretId": ("crm-token",),
    "value": ("correct-horse-battery",),
    "path": ("notes/queue.md", "/notes/queue.md"),
}

_IF_NEEDED = {"id", "role"}  # sent only where they are required

_KINDS: Mapping[str, type] = {"string": str, "integer": int}
NONE: Schema = {}
_LONG = 60  # characters of a body that stand on one line


def curl(method: str, path: str, operation: Mapping[str, Any], schemas: Schema) -> str:
    body, url = operation.get("requestBody"), shlex.quote(ADDRESS + _path(path) + _query(operation))
    is_told = method == ("POST" if body else "GET")  # curl's own choice
    parts = [f"curl -s {url}" if is_told else f"curl -s -X {method} {url}"]
    if "security" in operation:
        parts.append(KEY)
    sent = (it for it in operation["parameters"] if it["in"] == "header")
    named = [it["name"] for it in sent if it["required"] or it["name"] == AGENT]
    parts += [f'-H "{name}: {HEADERS[name]}"' for name in named]
    if body:
        parts.append(f"-d {shlex.quote(_sample_body(body, schemas))}")
    return " \\\n  ".join(parts)


def _path(path: str) -> str:
    steps = path.split("/")
    for at, step in enumerate(steps):
        if step.startswith("{"):
            name, of = step[1:-1], steps[at - 1]
            steps[at] = quote(IDS.get(name) or IDS.get(of, name), safe="")
    return "/".join(steps)


def _query(operation: Mapping[str, Any]) -> str:
    asked = {
        each["name"]: _sample(each["name"], each["schema"], ASKED)
        for each in operation["parameters"]
        if each["in"] == "query" and (each["required"] or each["name"] in ASKED)
    }
    texts = {name: v if isinstance(v, str) else json.dumps(v) for name, v in asked.items()}
    return f"?{urlencode(texts, quote_via=quote)}" if texts else ""


def _sample_body(body: Mapping[str, Any], schemas: Schema) -> str:
    value = _sample("", body["content"]["application/json"]["schema"], SENT, schemas)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONG else json.dumps(value, ensure_ascii=False, indent=2)


def _sample(name: str, schema: Schema, known: Known, schemas: Schema = NONE) -> object:
    match schema:
        case {"$ref": reference}:
            return _sample(name, schemas[name_of(reference)], known, schemas)
        case {"anyOf": [first, *_]}:
            return _sample(name, first, known, schemas)
        case {"const": value} | {"enum": [value, *_]} | {"examples": [value, *_]}:
            return value
        case {"items": items}:
            return [_sample(name, items, known, schemas)]
        case {"type": "object"}:
            return {
                inner: _sample(inner, field, known, schemas)
                for inner, field in schema.get("properties", {}).items()
                if inner in schema.get("required", ()) or inner in known.keys() - _IF_NEEDED
            }
    least = schema.get("minimum", 1)
    plain = {"integer": least, "number": least, "boolean": True}.get(schema.get("type", ""), name)
    return next((value for value in known.get(name, ()) if _takes(schema, value)), plain)


def _takes(schema: Schema, value: object) -> bool:
    if type(value) is not _KINDS.get(schema.get("type", "")):
        return False
    return not isinstance(value, str) or bool(re.search(schema.get("pattern", ""), value))


Document = Mapping[str, Any]
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    content: bytes
    policy: str


def page(document: Document) -> Page:
    style = Markup(files(__package__).joinpath("page.css").read_text("utf-8"))
    digest = b64encode(sha256(style.encode()).digest()).decode()
    html = tag("html", _head(document["info"], style), _body(document), lang="en")
    return Page(
        content=f"<!doctype html>\n{html}\n".encode(),
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )


def _head(info: Mapping[str, str], style: Markup) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", info["title"], " ", info["version"]),
        tag("style", style),
    )


def _body(document: Document) -> Markup:
    info, schemas = document["info"], document["components"]["schemas"]
    heading = tag("h1", info["title"], " ", tag("small", info["version"]))
    introduction = tag(
        "p",
        "All that ", tag("a", code("openapi.json"), href="openapi.json"), " says, for people. ",
        "The examples ask a service on this machine and send the key in ", code("$KEY"),
        ", which a service without keys does not look at. The ids in them are nobody's.",
    )  # fmt: skip
    return tag(
        "body",
        tag("a", "To the operations", href="#operations", class_="skip"),
        tag("header", heading, introduction),
        tag("nav", *_contents(document), aria_label="Contents"),
        tag("main", *_groups(document), *_schemas(schemas), id="operations", tabindex="-1"),
    )


def _contents(document: Document) -> Iterator[Markup]:
    for group in document["tags"]:
        links = (
            tag("a", _heading(method, path), href=f"#{operation['operationId']}")
            for method, path, operation in _operations(document, group["name"])
        )
        yield _chapter(group["name"], links, open="")
    yield _chapter("Schemas", map(link, document["components"]["schemas"]))


def _chapter(title: str, links: Iterator[Markup], **attributes: str) -> Markup:
    lines = (tag("li", each) for each in links)
    return tag("details", tag("summary", title), tag("ul", *lines), **attributes)


def _groups(document: Document) -> Iterator[Markup]:
    for group in document["tags"]:
        yield tag("h2", group["name"])
        yield tag("p", prose(group["description"]))
        for method, path, operation in _operations(document, group["name"]):
            yield _section(method, path, operation, document["components"])


def _operations(document: Document, group: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if group in operation["tags"]:
                yield method.upper(), path, operation


def _schemas(schemas: Schema) -> Iterator[Markup]:
    yield tag("h2", "Schemas")
    for name, schema in schemas.items():
        yield tag(
            "section",
            tag("h3", tag("a", name, href=f"#schema-{name}")),
            tag("p", prose(schema.get("description", ""))),
            fields(schema),
            id=f"schema-{name}",
        )


def _heading(method: str, path: str) -> Markup:
    steps = joined(*path.split("/"), by=joined("/", tag("wbr")))
    shown = tag("span", method, class_=f"method {method.lower()}")
    return joined(shown, " ", tag("code", steps, class_="path"))


def _section(
    method: str, path: str, operation: Mapping[str, Any], components: Mapping[str, Any]
) -> Markup:
    name, schemas = operation["operationId"], components["schemas"]
    return tag(
        "section",
        tag("h3", tag("a", _heading(method, path), href=f"#{name}")),
        tag("p", prose(operation["summary"])),
        tag("p", _admission(operation, components["securitySchemes"]), class_="needs"),
        *_parameters(operation["parameters"]),
        *_request_body(operation.get("requestBody"), schemas),
        tag("h4", "Answers"),
        *_answers(operation["responses"], schemas),
        tag("h4", "Example"),
        tag("pre", code(curl(method, path, operation, schemas))),
        id=name,
    )


def _admission(operation: Mapping[str, Any], keys: Mapping[str, Any]) -> Markup:
    if "security" not in operation:
        return joined("Needs no key.")
    ways = (code(_header(keys[name])) for way in operation["security"] for name in way)
    role = tag("strong", operation["x-role"])
    return joined("Role ", role, ", with a key in ", joined(*ways, by=" or "), ".")


def _header(key: Mapping[str, str]) -> str:
    return key["name"] if key["type"] == "apiKey" else f"Authorization: {key['scheme'].title()}"


def _parameters(parameters: list[Mapping[str, Any]]) -> Iterator[Markup]:
    if parameters:
        yield tag("h4", "Parameters")
        yield tag("dl", *map(_parameter, parameters))


def _parameter(parameter: Mapping[str, Any]) -> Markup:
    place = tag("span", parameter["in"], ",", class_="place")
    name = joined(code(parameter["name"]), " ", place)
    says = parameter.get("description", "")
    return row(name, parameter["schema"], is_required=parameter["required"], says=says)


def _request_body(body: Mapping[str, Any] | None, schemas: Schema) -> Iterator[Markup]:
    if body:
        schema = body["content"][JSON]["schema"]
        yield tag("h4", "Body")
        yield tag("p", "JSON: ", told(schema), " ", need(is_required=body["required"]))
        yield fields(schemas[name_of(schema["$ref"])])


def _answers(responses: Mapping[str, Any], schemas: Schema) -> Iterator[Markup]:
    # Refusals that look alike stand together.
    alike = groupby(responses.items(), key=lambda item: {**item[1], "description": ""})
    yield tag("dl", *(_answer([*answers]) for _, answers in alike), class_="answers")
    for status, answer in responses.items():
        schema = answer.get("content", {}).get(JSON, {}).get("schema", {})
        named = schema.get("items", schema)
        if "$ref" in named and status < "300":
            name = name_of(named["$ref"])
            yield tag("details", tag("summary", "What is in ", name), fields(schemas[name]))


def _answer(answers: list[tuple[str, Mapping[str, Any]]]) -> Markup:
    statuses = (tag("dt", code(status), " ", each["description"]) for status, each in answers)
    one = answers[0][1]
    bodies = [
        told(content["schema"]) if kind == JSON else kind
        for kind, content in one.get("content", {}).items()
    ]
    headers = (
        tag("p", "Header ", code(name), ": ", prose(header["description"]))
        for name, header in one.get("headers", {}).items()
    )
    said = (tag("p", each) for each in bodies or ["No body."])
    return tag("div", *statuses, tag("dd", *said, *headers))
