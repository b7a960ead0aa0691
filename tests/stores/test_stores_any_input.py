"""Any body to any route of memory stores, any text in any parameter: only documented answers."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..http.test_any_input import EXAMPLES, described, text, value
from ..support.service import Service
from ..support.service import lasting as service
from ..support.stores import NEVER, STORES, entry, entry_at, ok, refusal, store, update, versions

__all__ = ["described", "service"]

FIELDS = ("name", "description", "metadata", "path", "content", "version", "content_sha256", "more")
fitting = st.fixed_dictionaries(
    {"name": text, "path": text, "content": text},
    optional={
        "description": text, "metadata": st.dictionaries(text, text, max_size=3),
        "version": st.integers(), "content_sha256": text | st.just("a" * 64),
    },
)  # fmt: skip
record = fitting | st.dictionaries(st.sampled_from(FIELDS), value, max_size=8)
encoded = (record | value).map(lambda given: json.dumps(given).encode())
body = encoded | st.binary(max_size=60)
mangled = st.builds(
    lambda whole, at, part: whole[:at] + part + whole[at:], body, st.integers(0, 99),
    st.binary(max_size=3),
)  # fmt: skip

BODIES = [
    ("POST", STORES),
    ("POST", f"{STORES}/{{store_id}}/memories"),
    ("PUT", f"{STORES}/{{store_id}}/memories/{{entry_id}}"),
]
READS = [
    STORES, f"{STORES}/{{store_id}}", f"{STORES}/{{store_id}}/search",
    f"{STORES}/{{store_id}}/memories", f"{STORES}/{{store_id}}/memories/{{entry_id}}",
    f"{STORES}/{{store_id}}/versions", f"{STORES}/{{store_id}}/versions/{{version_id}}",
]  # fmt: skip


@pytest.fixture(scope="module")
def known(service: Service) -> dict[str, str]:
    """Ids of things that are there."""
    home = store(service.http)
    made = entry(service.http, home, "a/b")
    (version,) = versions(service.http, home)
    return {"store_id": home["id"], "entry_id": made["id"], "version_id": version["id"]}


def assert_documented(answer: httpx.Response, operation: Mapping[str, Any]) -> None:
    assert str(answer.status_code) in operation["responses"], answer.text
    assert answer.status_code < 500
    if answer.status_code >= 400:
        refusal(answer)


@pytest.mark.parametrize(("method", "template"), BODIES)
@EXAMPLES
@given(content=body | mangled)
def test_any_body_gets_a_documented_answer(
    service: Service, described: dict[str, Any], known: dict[str, str], method: str, template: str,
    content: bytes,
) -> None:  # fmt: skip
    answer = service.http.request(method, template.format(**known), content=content)

    assert_documented(answer, described[template][method.lower()])


@pytest.mark.parametrize("template", READS)
@EXAMPLES
@given(given_=st.data())
def test_any_parameter_gets_a_documented_answer(
    service: Service, described: dict[str, Any], known: dict[str, str], template: str,
    given_: st.DataObject,
) -> None:  # fmt: skip
    operation = described[template]["get"]
    raw = st.binary(max_size=12) | text.map(lambda given: given.encode("utf-8", "surrogatepass"))
    ids = st.sampled_from([*known.values(), f"mem_{NEVER}"]).map(str.encode)
    likely = st.sampled_from([b"1", b"0", b"true", b"2030-01-01T12:00:00Z"])
    values = {
        parameter["name"]: quote_from_bytes(given_.draw(ids | likely | raw), safe="")
        for parameter in operation["parameters"]
        if parameter["in"] == "query" and given_.draw(st.booleans())
    }
    places = {
        name: known[name] if given_.draw(st.booleans()) else quote_from_bytes(given_.draw(raw), "")
        for name in known
    }

    answer = service.http.get(
        template.format(**places) + "?" + "&".join(f"{name}={values[name]}" for name in values)
    )

    if answer.status_code in (404, 405):  # an id such as `.` makes another path
        return
    assert_documented(answer, operation)


@EXAMPLES
@given(contents=st.lists(st.text(min_size=1, max_size=50), min_size=2, max_size=3))
def test_any_text_is_stored_as_it_was_sent_or_refused(
    service: Service, contents: list[str]
) -> None:
    home = store(service.http)
    made, stored = entry(service.http, home, "a", "x"), "x"
    for content in contents:
        answer = service.http.put(entry_at(home, made), json={"content": content})
        if not content.strip() or "\0" in content:
            assert refusal(answer).param == "content"
        else:
            assert ok(answer)["content"] == content
            stored = content
    last = update(service.http, home, made, stored)
    assert last["content_sha256"] == hashlib.sha256(stored.encode()).hexdigest()
    assert last["size"] == len(stored.encode())
