"""Any body to any route of the Anthropic dialect, and any text in any parameter."""

import json
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..http.test_any_input import EXAMPLES, described, mangled, text, value
from ..support.anthropic_sdk import STORES
from ..support.service import Service
from ..support.service import lasting as service

__all__ = ["described", "service"]

pytestmark = pytest.mark.usefixtures("nothing_fails")

FIELDS = {
    "name": text,
    "description": text,
    "metadata": st.dictionaries(text, text | st.none(), max_size=20),
    "path": text.map(lambda given: f"/{given}"),
    "content": text,
    "precondition": st.fixed_dictionaries(
        {"type": st.sampled_from(["content_sha256", "x"])}, optional={"content_sha256": text}
    ),
}
record = st.fixed_dictionaries({}, optional=FIELDS) | st.dictionaries(
    st.sampled_from(sorted(FIELDS)), value, max_size=6
)
body = record.map(lambda given: json.dumps(given).encode()) | mangled
WORDS = st.sampled_from(
    ["1", "0", "basic", "full", "/a/", "2030-01-01T12:00:00Z", "0001-01-01T00:00:00-23:59",
     "9999-12-31T23:59:59-23:59", "created", "true", "AAAAAAAAAAAvYQ"]
)  # fmt: skip


@pytest.fixture(scope="module")
def ids(service: Service) -> dict[str, str]:
    """Of a store with a memory in it."""
    notes = service.http.post(STORES, json={"name": "notes"}).json()["id"]
    held = service.http.post(
        f"{STORES}/{notes}/memories", json={"path": "/a/b", "content": "x"}
    ).json()
    return {
        "memory_store_id": notes,
        "memory_id": held["id"],
        "memory_version_id": held["memory_version_id"],
    }


def assert_documented(answer: httpx.Response, operation: dict[str, Any]) -> None:
    assert str(answer.status_code) in operation["responses"]
    assert answer.status_code < 500
    assert answer.headers["request-id"]
    assert answer.status_code < 400 or answer.json().keys() == {"type", "error", "request_id"}


STORE = f"{STORES}/{{memory_store_id}}"
WRITES = (
    STORES, STORE, f"{STORE}/memories", f"{STORE}/memories/{{memory_id}}",
    f"{STORE}/memory_versions/{{memory_version_id}}/redact",
)  # fmt: skip
READS = (
    STORES, STORE, f"{STORE}/memories", f"{STORE}/memories/{{memory_id}}",
    f"{STORE}/memory_versions", f"{STORE}/memory_versions/{{memory_version_id}}",
)  # fmt: skip


@pytest.mark.parametrize("template", WRITES)
@EXAMPLES
@given(content=body)
def test_any_body_gets_a_documented_answer(
    service: Service, ids: dict[str, str], described: dict[str, Any], template: str, content: bytes
) -> None:
    answer = service.http.post(template.format(**ids), content=content)

    assert_documented(answer, described[template]["post"])


@pytest.mark.parametrize("template", READS)
@EXAMPLES
@given(chosen=st.data())
def test_any_parameter_gets_a_documented_answer(
    service: Service, ids: dict[str, str], described: dict[str, Any], template: str,
    chosen: st.DataObject,
) -> None:  # fmt: skip
    operation = described[template]["get"]
    raw = st.binary(max_size=12) | text.map(lambda given: given.encode("utf-8", "surrogatepass"))
    query = "&".join(
        f"{parameter['name']}={chosen.draw(WORDS | raw.map(_quoted))}"
        for parameter in operation["parameters"]
        if parameter["in"] == "query" and chosen.draw(st.booleans())
    )

    answer = service.http.get(f"{template.format(**ids)}?{query}")

    assert_documented(answer, operation)


@EXAMPLES
@given(id_=st.binary(min_size=1, max_size=40).map(lambda raw: quote_from_bytes(raw, safe="")))
def test_any_id_is_unknown(service: Service, id_: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = service.http.request(method, f"{STORES}/{id_}")
        assert answer.status_code in (404, 405)  # an id such as `.` makes another path


def _quoted(raw: bytes) -> str:
    return quote_from_bytes(raw, safe="")
