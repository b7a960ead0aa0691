"""Refusals: their one shape, what they name, what they never quote, and that nothing is a 500."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st

from ..support.openwop_hosts import REF, H, Host, ok, refused
from ..support.openwop_tenants import EXAMPLES, NEVER, SECRET, anew
from ..support.requirements import requirement
from ..support.service import Service

pytestmark = pytest.mark.usefixtures("nothing_fails")
MIB = 1 << 20
MISSING = (404, "not_found")
INVALID = (400, "validation_error")


def sent(host: Host, body: bytes, **headers: str) -> httpx.Response:
    return host.http.post(f"{H}/memory", content=body, headers=headers)


@requirement("OW-6", "OW-22")
def test_what_is_no_route_is_refused_in_the_protocols_shape(host: Host) -> None:
    for method, path in [
        ("GET", "/v1/"), ("GET", "/v1/nothing"), ("POST", "/v1/nothing"),
        ("GET", H), ("GET", f"{H}/"), ("GET", f"{H}/nothing"), ("GET", f"{H}/memory/"),
        ("GET", f"{H}/memory/a/b"), ("GET", "/v1/host/other/memory"), ("DELETE", "/v1/x/y"),
        ("GET", f"{H}/MEMORY"), ("GET", f"{H}/provenance"),
    ]:  # fmt: skip
        answer = host.http.request(method, path, params={"memoryRef": REF})
        assert refused(answer) == MISSING, path
        assert answer.headers["content-type"].startswith("application/json")
    for method, path, allowed in [
        ("PUT", "/memory", "GET, HEAD, POST"), ("DELETE", "/memory", "GET, HEAD, POST"),
        ("POST", "/search", "GET, HEAD"), ("DELETE", "/refs", "GET, HEAD"),
        ("PATCH", "/memory/a", "DELETE, GET, HEAD"), ("POST", "/provenance/a", "GET, HEAD"),
    ]:  # fmt: skip
        answer = host.ask(method, path, {})
        assert refused(answer) == (405, "method_not_allowed"), path
        assert answer.headers["allow"] == allowed
    assert host.http.request("HEAD", f"{H}/memory").status_code == 200


@requirement("OW-11")
def test_a_body_has_a_mebibyte(host: Host) -> None:
    frame = json.dumps({"memoryRef": REF, "content": "apple", "more": ""}).encode()
    for over, wanted in ((0, (201, "")), (1, (413, "payload_too_large"))):
        body = frame[:-2] + b"x" * (MIB - len(frame) + over) + frame[-2:]
        answer = sent(host, body)
        assert (answer.status_code, answer.json().get("error", "")) == wanted
    assert host.contents() == ["apple"]


PUT = b'{"memoryRef":"mem://notes","content":"VALUE"}'


@requirement("OW-11")
def test_bodies_are_read_whatever_their_type_and_what_is_no_text_is_refused(host: Host) -> None:
    for kind in ("text/plain", "application/xml", ""):
        answer = sent(host, PUT.replace(b"VALUE", rb"\ud83c\udf32"), **{"content-type": kind})
        assert ok(answer, 201)["entry"]["content"] == "\U0001f332"
        for body in (b"", PUT[:-1] + rb',"tags":["\ud800"]}', PUT[:-1] + rb',"tags":["a\u0000"]}'):
            assert refused(sent(host, body, **{"content-type": kind})) == INVALID

    for query in ("memoryRef=%FF", "memoryRef=a&tag=%FF", "memoryRef=a&tag=%ED%A0%80"):
        assert refused(host.http.get(f"{H}/memory?{query}")) == INVALID, query
    assert refused(host.http.get(f"{H}/search?memoryRef=a&q=%FF")) == INVALID
    for method in ("GET", "DELETE"):
        assert host.http.request(method, f"{H}/memory/%FF").status_code in (400, 404)
        assert host.http.request(method, f"{H}/memory/%00").status_code in (400, 404)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([REF, "..", "2031-01-01T00:00:00Z", "tenant:acme", NEVER]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)  # fmt: skip
FIELDS = st.sampled_from(
    "memoryRef content tags expiresAt ttlSeconds supersedes id runId nodeId agentId other".split()
)


@pytest.mark.slow
@EXAMPLES
@given(fields=st.dictionaries(FIELDS, ANY, max_size=5), is_whole=st.booleans())
@requirement("OW-11", "OW-6", "OW-12")
def test_whatever_is_put_is_stored_or_refused_with_its_fields(
    service: Service, fields: dict[str, Any], is_whole: bool
) -> None:
    host = anew(Host(service.http))
    body = ({"memoryRef": host.ref, "content": "apple"} if is_whole else {}) | fields

    answer = sent(host, json.dumps(body).encode())

    if answer.status_code not in (200, 201):
        status, code = refused(answer)
        assert (status, code) in (
            INVALID, MISSING, (403, "forbidden"), (409, "memory_changed"),
            (409, "memory_id_conflict"),
        )  # fmt: skip
        named = answer.json().get("details", {}).get("fields", [])
        assert {it["field"].split("[")[0] for it in named} <= {*body, "memoryRef", "content"}
        assert all(it.keys() == {"field", "problem"} for it in named)
        assert host.entries() == []


@requirement("OW-14", "OW-6")
def test_no_refusal_quotes_what_was_sent_or_stored(host: Host) -> None:
    ref, memory, tag, text = "xylographer", "xylotomist", "xylophagan", "xylomarimba"
    host = Host(host.http, f"mem://{ref}")
    host.put(text, id=memory, tags=[tag])
    answers = [
        host.post(text + "!", id=memory, tags=[tag]),
        host.post(text, id=f"{memory}\n", tags=[tag, "archive"]),
        host.post(text, tags=[tag, tag * 99]), host.post(text * 9_999),
        host.post(text, supersedes=[memory, f"{memory}2"]), host.post(text, runId=memory),
        host.post(text, memoryRef=f"{ref}/.."), host.post(text, memoryRef=f"tenants/{ref}/a"),
        host.post(text, memoryRef=SECRET), host.post(text, id=SECRET), host.post(text, nodeId=tag),
        host.get(f"{memory}2"), host.delete(f"{memory}2"),
        host.ask("GET", "/memory", params={"memoryRef": host.ref, "before": f"{memory}2"}),
        host.ask("GET", "/memory", params={"memoryRef": host.ref, "limit": text}),
        host.ask("GET", "/memory", params={"memoryRef": host.ref, "tag": tag * 99}),
        host.ask("GET", f"/{memory}"), host.ask("PUT", f"/memory/{memory}", {"content": text}),
        host.http.get(f"/v1/{ref}"), sent(host, f'{{"content":"{text}"'.encode()),
        sent(host, f'{{"{tag}":"\\ud800","content":"{text}"}}'.encode()),
    ]  # fmt: skip

    for answer in answers:
        assert answer.is_client_error
        refused(answer)
        for word in ("xylo", SECRET, "SQL", "sqlite"):
            assert word not in answer.text, answer.text


@pytest.mark.slow
@requirement("OW-13", "OW-23", "OW-45")
def test_a_repeated_request_tells_what_it_told_and_shows_nothing_that_is_gone(
    service: Service, host: Host
) -> None:
    once = Host(host.http, headers={"Idempotency-Key": "once"})
    opened = once.ask("POST", "/runs", {"runId": "r1"})
    run = Host(host.http, run="r1")
    branched = Host(host.http, run="r1", headers={"Idempotency-Key": "fork"})
    branch = branched.fork("branch", fromSeq=0)
    put = Host(host.http, headers={"Idempotency-Key": "put"})
    made = [put.post("deleted"), Host(host.http, headers={"Idempotency-Key": "p2"}).post(
        "ended", ttlSeconds=60
    )]  # fmt: skip
    run.end()
    Host(host.http, run=branch.json()["runId"]).end("failed")
    ok(host.delete(made[0].json()["entry"]["id"]))
    service.clock.advance(minutes=2)

    assert once.ask("POST", "/runs", {"runId": "r1"}).content == opened.content
    assert branched.fork("branch", fromSeq=0).content == branch.content
    assert refused(put.post("deleted")) == (409, "memory_changed")
    again = Host(host.http, headers={"Idempotency-Key": "p2"}).post("ended", ttlSeconds=60)
    assert refused(again) == (409, "memory_changed")


@pytest.mark.slow
@requirement("OW-11", "OW-33")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_is_no_text_in_a_path_is_no_other_entry(host: Host, method: str) -> None:
    host.put(id="\ufffd")

    answer = host.http.request(method, f"{H}/memory/%ff?memoryRef=mem%3A%2F%2Fnotes")

    assert refused(answer) == (400, "validation_error")
    assert ok(host.get("%EF%BF%BD"))["entry"]["id"] == "\ufffd"


@requirement("OW-30", "OW-31")
def test_refs_without_anything_are_alike_with_a_run_and_with_a_page(host: Host) -> None:
    for more in ("runId=nope", "before=nope"):
        lists = [
            host.http.get(f"{H}/memory?memoryRef={ref}&{more}")
            for ref in ("unknown", "a/../b", "tenants/acme/x")
        ]
        assert len({(it.status_code, it.content) for it in lists}) == 1, more
        assert lists[0].is_error
    gets = [
        host.http.get(f"{H}/memory/x?memoryRef={ref}&runId=nope")
        for ref in ("unknown", "a/../b", "tenants/acme/x")
    ]
    assert len({(it.status_code, it.content) for it in gets}) == 1
