"""A request with curl for each operation, which can be sent as it stands."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from .schemas import Schema, name_of

ADDRESS = "127.0.0.1:7437"  # where a service listens unless told; nothing is taken from a request
KEY = '-H "Authorization: Bearer $KEY"'

# Nobody's, so that what is sent as it stands changes nothing that matters.
SESSION, PROJECT, OBSERVATION = "example-session", "example", 123456789

# An id, by the collection that it is of.
IDS = {
    "sessions": SESSION,
    "observations": str(OBSERVATION),
    "projects": PROJECT,
    "erasures": "01977420-7c00-7000-8000-000000000001",
    "memory_stores": "memstore_019774207c0070008000000000000001",
    "memories": "mem_019774207c0070008000000000000002",
    "versions": "memver_019774207c0070008000000000000003",
    "memory_versions": "memver_019774207c0070008000000000000003",
}

# By the names of parameters and of fields: the first that the schema takes is asked for or sent.
# Whatever else is optional is left out.
ASKED: Mapping[str, tuple[object, ...]] = {
    "project": (PROJECT,),
    "q": ("queue",),
    "query": ("Why is the queue full?",),
    "observation_id": (OBSERVATION,),
}
SENT: Mapping[str, tuple[object, ...]] = {
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
    "path": ("notes/queue.md", "/notes/queue.md"),
}

_KINDS: Mapping[str, type] = {"string": str, "integer": int}
_LONG = 60  # characters of a body that stand on one line


def curl(method: str, path: str, operation: Mapping[str, Any], schemas: Schema) -> str:
    """The command that asks for an operation."""
    url = shlex.quote(f"{ADDRESS}{_path(path)}{_query(operation)}")
    parts = [f"curl -s {url}"]
    if "security" in operation:
        parts.append(KEY)
    if "requestBody" in operation:
        parts.append(f"-d {shlex.quote(_body(operation['requestBody'], schemas))}")
    if method != ("POST" if "requestBody" in operation else "GET"):
        parts[0] = f"curl -s -X {method} {url}"
    return " \\\n  ".join(parts)


def _path(path: str) -> str:
    return re.sub(
        r"(?<=/)(\w+)/\{(\w+)\}",
        lambda found: f"{found[1]}/{quote(IDS.get(found[1], found[2]), safe='')}",
        path,
    )


def _query(operation: Mapping[str, Any]) -> str:
    samples = _Samples(ASKED, {})
    asked = {
        each["name"]: samples.of(each["name"], each["schema"])
        for each in operation["parameters"]
        if each["in"] == "query" and (each["required"] or each["name"] in ASKED)
    }
    texts = {name: _text(value) for name, value in asked.items()}
    return f"?{urlencode(texts, quote_via=quote)}" if texts else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _body(body: Mapping[str, Any], schemas: Schema) -> str:
    value = _Samples(SENT, schemas).of("", body["content"]["application/json"]["schema"])
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONG else json.dumps(value, ensure_ascii=False, indent=2)


@dataclass(frozen=True, slots=True)
class _Samples:
    """Values that schemas take."""

    known: Mapping[str, tuple[object, ...]]
    schemas: Schema

    def of(self, name: str, schema: Schema) -> object:
        """One that stands under the name."""
        match schema:
            case {"$ref": reference}:
                return self.of(name, self.schemas[name_of(reference)])
            case {"anyOf": [first, *_]}:
                return self.of(name, first)
            case {"const": value} | {"enum": [value, *_]}:
                return value
            case {"items": items}:
                return [self.of(name, items)]
            case {"type": "object"}:
                return self._object(schema)
        fitting = (value for value in self.known.get(name, ()) if _takes(schema, value))
        return next(fitting, _plain(name, schema))

    def _object(self, schema: Schema) -> dict[str, object]:
        required = schema.get("required", ())
        return {
            name: self.of(name, field)
            for name, field in schema.get("properties", {}).items()
            if name in required or name in self.known
        }


def _takes(schema: Schema, value: object) -> bool:
    if type(value) is not _KINDS.get(schema.get("type", "")):
        return False
    return not isinstance(value, str) or bool(re.search(schema.get("pattern", ""), value))


def _plain(name: str, schema: Schema) -> object:
    match schema.get("type"):
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return name
