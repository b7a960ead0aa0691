"""Any body to any route, and any text in any parameter: only documented answers."""

import json
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import Phase, given, settings, strategies as st

from ..support.samples import examples
from ..support.service import Service, lasting_with

text = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ["s1", "demo", "topic/key", "\0", "\ud800", "x" * 600, "2030-01-01T12:00:00Z", "decision"]
)
scalar = st.none() | st.booleans() | st.integers() | st.floats() | text
value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4)
)

FIELDS = (
    "id", "project", "messages", "role", "session_id", "type", "title", "content", "tags", "scope",
    "topic_key", "revision", "uid", "created_at", "updated_at", "started_at", "message_count",
    "revision_count", "sessions", "observations",
)  # fmt: skip
LISTS = ("sessions", "observations", "messages")
record = st.fixed_dictionaries(
    {}, optional={name: text if name not in ("tags", "messages") else value for name in FIELDS[:11]}
) | st.dictionaries(st.sampled_from(FIELDS), value, max_size=8)
document = st.fixed_dictionaries(
    {}, optional={name: st.lists(record, max_size=3) for name in LISTS}
)
encoded = (record | document | value).map(lambda given: json.dumps(given).encode())
body = encoded | st.binary(max_size=60)
mangled = st.builds(
    lambda whole, at, part: whole[:at] + part + whole[at:], body, st.integers(0, 99),
    st.binary(max_size=3),
)  # fmt: skip

EXAMPLES = settings(examples(40), phases=(Phase.generate, Phase.shrink))


service = lasting_with(lambda it: it.save("The first of them.", topic_key="topic/key"))


@pytest.fixture(scope="module")
def described(service: Service) -> dict[str, Any]:
    paths: dict[str, Any] = service.http.get("/openapi.json").json()["paths"]
    return paths


BODIES = (
    ("POST", "/sessions"), ("POST", "/sessions/{id}/messages"), ("POST", "/sessions/{id}/end"),
    ("POST", "/observations"), ("PATCH", "/observations/{id}"),
    ("POST", "/observations/{id}/restore"), ("POST", "/import"),
)  # fmt: skip
QUERIES = (
    "/sessions/recent", "/observations/recent", "/observations/{id}", "/observations/{id}/history",
    "/search", "/context", "/timeline", "/stats", "/export",
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "template"),
    [*BODIES, *(pytest.param("GET", it, marks=pytest.mark.slow) for it in QUERIES)],
)
@EXAMPLES
@given(given_=st.data())
def test_any_body_and_any_parameter_get_a_documented_answer(
    service: Service, described: dict[str, Any], method: str, template: str, given_: st.DataObject
) -> None:
    operation, values, content = described[template][method.lower()], {"id": "1"}, b""
    if method == "GET":
        raw = st.binary(max_size=12) | text.map(
            lambda given: given.encode("utf-8", "surrogatepass")
        )
        number = st.integers(-2, 2).map(lambda given: b"%d" % given)
        values = {
            parameter["name"]: quote_from_bytes(given_.draw(number | raw), safe="")
            for parameter in operation["parameters"]
            if parameter["in"] == "path" or given_.draw(st.booleans())
        }
    else:
        content = given_.draw(body | mangled)
    path = template.replace("{id}", values.pop("id", ""))
    query = "&".join(f"{name}={value}" for name, value in values.items())

    answer = service.http.request(method, f"{path}?{query}", content=content)

    elsewhere = (404, 405) if method == "GET" else ()  # an id such as `.` makes another path
    assert str(answer.status_code) in operation["responses"] or answer.status_code in elsewhere
    assert answer.status_code < 500
    assert answer.status_code < 400 or answer.json().keys() == {"error"}
