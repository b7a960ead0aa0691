"""The limits of the Memory Stores API: what is just within, what is just over, what is no text."""

import json

import pytest

from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service
from ..support.service import lasting as service
from ..support.stores import (
    STORES,
    Object,
    at,
    entry,
    entry_at,
    fault,
    invalid,
    ok,
    refusal,
    store,
)

__all__ = ["service"]


@pytest.mark.slow
@requirement("stores:store:limits")
@for_each("field, most", [("name", 64), ("description", 1024)])
@for_each("sign", ["x", "\u4f1a", "\U0001f332"])
def test_a_store_is_described_in_so_many_characters(
    service: Service, field: str, most: int, sign: str
) -> None:
    made = ok(service.http.post(STORES, json={"name": "a", field: f"  {sign * most}\n"}), 201)
    over = service.http.post(STORES, json={"name": "a", field: sign * (most + 1)})

    assert made[field] == sign * most
    sentence = f"Field '{field}' must be at most {most:,} characters."
    assert refusal(over) == (400, "invalid_request_error", sentence, field)


@requirement("stores:store:limits", "stores:secrets")
def test_no_name_grows_by_what_stands_for_its_secrets(service: Service) -> None:
    text = "postgres://a:b1C2d3@c " * 3
    answer = service.http.post(STORES, json={"name": text[:64]})

    assert answer.headers["x-redacted"] == "3"
    assert len(ok(answer, 201)["name"]) == 64


PAIRS = [
    ({f"k{n}": "v" for n in range(16)}, {f"k{n}": "v" for n in range(17)}),
    ({"\u4f1a" * 64: "v"}, {"\u4f1a" * 65: "v"}),
    ({"k": "\u4f1a" * 512}, {"k": "\u4f1a" * 513}),
    ({"": ""}, {"k": 1}),
]


@requirement("stores:metadata:limits")
@pytest.mark.parametrize(("within", "over"), PAIRS)
def test_metadata_are_few_and_short_everywhere(
    service: Service, home: Object, within: Object, over: Object
) -> None:
    made = entry(service.http, home, "there")
    for method, path, body in [
        ("POST", STORES, {"name": "a"}),
        ("POST", at(home, "memories"), {"path": "a", "content": "b"}),
        ("PUT", entry_at(home, made), {"content": "b"}),
    ]:
        refused = service.http.request(method, path, json={**body, "metadata": over})
        assert fault(refused) == invalid("metadata")
        answer = service.http.request(method, path, json={**body, "metadata": within})
        assert answer.is_success, answer.text
        assert answer.json()["metadata"] == within


@requirement("stores:decided:100-kb")
@for_each("sign", ["x", "\u00e9", "\u4f1a", "\U0001f332"])
def test_a_content_has_so_many_bytes(service: Service, sign: str) -> None:
    home = store(service.http)
    width = len(sign.encode())
    most = sign * (102_400 // width) + "x" * (102_400 % width)
    made = entry(service.http, home, "a", most)
    asked = [
        service.http.post(at(home, "memories"), json={"path": "b", "content": f"{most}x"}),
        service.http.put(entry_at(home, made), json={"content": f"{most}x"}),
    ]

    assert (made["size"], made["content"]) == (102_400, most)
    sentence = "Field 'content' must be at most 102,400 bytes."
    for answer in asked:
        assert refusal(answer) == (400, "invalid_request_error", sentence, "content")


@requirement("stores:path:bytes")
@for_each("sign", ["x", "\u00e9", "\u4f1a", "\U0001f332"])
def test_a_path_has_so_many_bytes(service: Service, home: Object, sign: str) -> None:
    width = len(sign.encode())
    most = sign * (1024 // width) + "x" * (1024 % width)
    made = entry(service.http, home, most)
    over = service.http.post(at(home, "memories"), json={"path": f"{most}x", "content": "a"})

    assert made["path"] == most
    assert refusal(over)[2:] == ("path has at most 1,024 bytes.", "path")


@requirement("stores:path:segments")
def test_a_path_has_so_many_segments(service: Service, home: Object) -> None:
    made = entry(service.http, home, "/".join("a" * 20))
    over = service.http.post(
        at(home, "memories"), json={"path": "/".join("a" * 21), "content": "a"}
    )

    assert made["path"].count("/") == 19
    assert fault(over) == invalid("path")


@pytest.mark.representative(4)
@pytest.mark.parametrize("sign", ["\0", "\ud800", "a\ud83dz"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", "a{}b"), ("content", "a{}b"), ("metadata", {"k": "a{}b"}),
        ("metadata", {"a{}b": "v"}),
    ],
)  # fmt: skip
@requirement("stores:content:exact")
def test_an_entry_is_stored_as_it_was_sent_or_not_at_all(
    service: Service, home: Object, field: str, value: str | Object, sign: str
) -> None:
    given = json.loads(json.dumps(value).replace("{}", json.dumps(sign)[1:-1]))
    made = entry(service.http, home, "there")
    whole = {"path": "a", "content": "b", field: given}
    asked = [service.http.post(at(home, "memories"), content=json.dumps(whole))]
    if field != "path":
        asked.append(service.http.put(entry_at(home, made), content=json.dumps(whole)))

    assert [fault(answer) for answer in asked] == [invalid(field)] * len(asked)
    for name in ("name", "description"):
        body = json.dumps({"name": "a", name: sign})
        assert fault(service.http.post(STORES, content=body)) == invalid(name)
    assert ok(service.http.get(at(home)))["entry_count"] == 1


@requirement("stores:content:exact")
@pytest.mark.parametrize("bytes_", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_bytes_that_are_no_text_are_refused(service: Service, home: Object, bytes_: bytes) -> None:
    made = entry(service.http, home, "there")
    for method, path in [("POST", at(home, "memories")), ("PUT", entry_at(home, made))]:
        body = b'{"path": "a", "content": "' + bytes_ + b'"}'
        told = refusal(service.http.request(method, path, content=body))
        assert told == (400, "invalid_request_error", "invalid JSON: no UTF-8 at byte 26.", None)
    long = b'{"name": "' + b"x" * 70_000 + bytes_ + b'"}'
    assert refusal(service.http.post(STORES, content=long)).message.endswith("at byte 70010.")
