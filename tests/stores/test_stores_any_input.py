"""Any body to any route of either dialect of memory stores, any text in any parameter."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import pytest
from hypothesis import given, strategies as st

from ..http.test_any_input import EXAMPLES, described, mangled, text, value
from ..support.service import Service, lasting as service
from ..support.store_dialects import (
    ANTHROPIC,
    DIALECTS,
    UNKNOWN,
    Dialect,
    stocked,
)

__all__ = ["described", "service"]

pytestmark = pytest.mark.usefixtures("nothing_fails")

FIELDS = {
    "name": text, "description": text, "path": text | text.map(lambda it: f"/{it}"),
    "metadata": st.dictionaries(text, text | st.none(), max_size=20), "content": text,
    "version": st.integers(), "content_sha256": text | st.just("a" * 64), "more": value,
    "precondition": st.fixed_dictionaries(
        {"type": st.sampled_from(["content_sha256", "x"])}, optional={"content_sha256": text}
    ),
}  # fmt: skip
record = st.fixed_dictionaries(
    {name: FIELDS[name] for name in ("name", "path", "content")},
    optional={
        name: FIELDS[name] for name in ("description", "metadata", "version", "precondition")
    },
) | st.dictionaries(st.sampled_from(sorted(FIELDS)), value, max_size=8)
body = record.map(lambda it: json.dumps(it).encode()) | mangled
words = st.sampled_from(
    ["1", "0", "true", "basic", "full", "/a/", "2030-01-01T12:00:00Z", "0001-01-01T00:00:00-23:59",
     "9999-12-31T23:59:59-23:59", "created", "AAAAAAAAAAAvYQ"]
)  # fmt: skip
raw = st.binary(max_size=12) | text.map(lambda it: it.encode("utf-8", "surrogatepass"))
OPERATIONS = [(dialect, it) for dialect in DIALECTS for it in dialect.operations()]
BODIES = [
    (dialect, it.method, it.path)
    for dialect, it in OPERATIONS
    if it.body or (dialect is ANTHROPIC and it.path.endswith("/redact"))
]
READS = [(dialect, it.path) for dialect, it in OPERATIONS if it.method == "GET"]


@pytest.fixture(scope="module")
def known(service: Service) -> dict[str, str]:
    """Ids of things that are there."""
    store_id, entry_id, version_id = stocked(service.http)
    return {
        "store_id": store_id, "memory_store_id": store_id, "entry_id": entry_id,
        "memory_id": entry_id, "version_id": version_id, "memory_version_id": version_id,
    }  # fmt: skip


def assert_documented(
    dialect: Dialect, answer: httpx.Response, operation: Mapping[str, Any]
) -> None:
    assert str(answer.status_code) in operation["responses"], answer.text
    assert answer.status_code < 500
    assert answer.headers[dialect.request_id]
    if answer.status_code >= 400:
        error = answer.json()
        assert error.keys() == {"type", "error", "request_id"}
        assert error["error"].keys() >= {"type", "message"}


@pytest.mark.parametrize("target", BODIES, ids=lambda it: it[2])
@EXAMPLES
@given(content=body)
def test_any_body_gets_a_documented_answer(
    service: Service, described: dict[str, Any], known: dict[str, str],
    target: tuple[Dialect, str, str], content: bytes,
) -> None:  # fmt: skip
    dialect, method, template = target
    answer = service.http.request(method, template.format(**known), content=content)

    assert_documented(dialect, answer, described[template][method.lower()])


@pytest.mark.slow
@pytest.mark.parametrize("target", READS, ids=lambda it: it[1])
@EXAMPLES
@given(chosen=st.data())
def test_any_parameter_gets_a_documented_answer(
    service: Service, described: dict[str, Any], known: dict[str, str],
    target: tuple[Dialect, str], chosen: st.DataObject,
) -> None:  # fmt: skip
    dialect, template = target
    operation = described[template]["get"]
    ids = st.sampled_from([*known.values(), *UNKNOWN])
    query = "&".join(
        f"{parameter['name']}={chosen.draw(words | ids | raw.map(_quoted))}"
        for parameter in operation["parameters"]
        if parameter["in"] == "query" and chosen.draw(st.booleans())
    )
    places = {
        name: id_ if chosen.draw(st.booleans()) else _quoted(chosen.draw(raw))
        for name, id_ in known.items()
    }

    answer = service.http.get(f"{template.format(**places)}?{query}")

    if answer.status_code not in (404, 405):  # an id such as `.` makes another path
        assert_documented(dialect, answer, operation)


def _quoted(raw: bytes) -> str:
    return quote_from_bytes(raw, safe="")
