"""A request with curl for each operation, which can be sent as it stands."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from .markup import Schema, name_of

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
    """The command that asks for an operation."""
    body, url = operation.get("requestBody"), shlex.quote(ADDRESS + _path(path) + _query(operation))
    is_told = method == ("POST" if body else "GET")  # curl's own choice
    parts = [f"curl -s {url}" if is_told else f"curl -s -X {method} {url}"]
    if "security" in operation:
        parts.append(KEY)
    sent = (it for it in operation["parameters"] if it["in"] == "header")
    named = [it["name"] for it in sent if it["required"] or it["name"] == AGENT]
    parts += [f'-H "{name}: {HEADERS[name]}"' for name in named]
    if body:
        parts.append(f"-d {shlex.quote(_body(body, schemas))}")
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


def _body(body: Mapping[str, Any], schemas: Schema) -> str:
    value = _sample("", body["content"]["application/json"]["schema"], SENT, schemas)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONG else json.dumps(value, ensure_ascii=False, indent=2)


def _sample(name: str, schema: Schema, known: Known, schemas: Schema = NONE) -> object:
    """A value that a schema takes which stands under the name."""
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
