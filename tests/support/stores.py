"""The Memory Stores API as a test asks it: what is made, what is listed, how it refuses."""

import re
from typing import Any, NamedTuple

import httpx

from agentops_memory.errors import Refusal

PREFIX = "/api/v1/cloud"
STORES = f"{PREFIX}/memory_stores"
NEVER = "0" * 32  # the digits of an id that was never given

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

Object = dict[str, Any]


class Refused(NamedTuple):
    """What a refusal says."""

    status: int
    type: str
    message: str
    param: str | None = None


def refusal(answer: httpx.Response, request_id: str = "x-request-id") -> Refused:
    """The refusal, which has the shape that all of them have, with the id of its header."""
    body = answer.json()
    error = body.pop("error")
    assert body == {"type": "error", "request_id": answer.headers[request_id]}, answer.text
    assert error.keys() - {"param"} == {"type", "message"}
    assert answer.headers["content-type"] == "application/json"
    return Refused(answer.status_code, error["type"], error["message"], error.get("param"))


def invalid(param: str) -> tuple[int, str, str]:
    """What is wrong with one field or parameter."""
    return 400, "invalid_request_error", param


def fault(answer: httpx.Response) -> tuple[int, str, str | None]:
    """The refusal without its sentence."""
    told = refusal(answer)
    return told.status, told.type, told.param


def ok(answer: httpx.Response, status: int = 200) -> Object:
    """The object that is answered."""
    assert answer.status_code == status, answer.text
    told: Object = answer.json()
    return told


def store(http: httpx.Client, name: str = "Notes", **fields: object) -> Object:
    """A new store."""
    return ok(http.post(STORES, json={"name": name, **fields}), 201)


def at(store: Object, *steps: str) -> str:
    """A path below a store."""
    return "/".join((STORES, store["id"], *steps))


def entry(
    http: httpx.Client, store: Object, path: str, content: str = "Hello world", **fields: object
) -> Object:
    """A new entry."""
    body = {"path": path, "content": content, **fields}
    return ok(http.post(at(store, "memories"), json=body), 201)


def entry_at(store: Object, entry: Object) -> str:
    return at(store, "memories", entry["id"])


def update(
    http: httpx.Client, store: Object, entry: Object, content: str, **fields: object
) -> Object:
    """The entry after an update."""
    return ok(http.put(entry_at(store, entry), json={"content": content, **fields}))


def delete(http: httpx.Client, path: str) -> None:
    """Delete what lies at the path."""
    answer = http.delete(path)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


def versions(http: httpx.Client, store: Object, **asked: str) -> list[Object]:
    """The versions of a store, newest first."""
    listed: list[Object] = ok(http.get(at(store, "versions"), params=asked))["data"]
    return listed


def version_at(store: Object, version: Object) -> str:
    return at(store, "versions", version["id"])


def redact(http: httpx.Client, store: Object, version: Object) -> Object:
    """The version after its redaction."""
    return ok(http.post(f"{version_at(store, version)}/redact"))


def ids(answer: httpx.Response) -> list[str]:
    """The ids of a list, in its order."""
    return [item["id"] for item in ok(answer)["data"]]


# Told at a terminal alone.
OF_COMMANDS = {"start_refused", "backup_refused", "copy_refused", "restore_refused"}


def codes() -> set[str]:
    """The code of each kind of refusal that the program has by now."""
    kinds = [Refusal]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {kind.code for kind in kinds[1:] if kind.__module__.startswith("agentops_memory.")}
    return ours - OF_COMMANDS
