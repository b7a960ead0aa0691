"""Entries of agents' memory over HTTP: their members, versions, ends, places, and refusals."""

import json
from datetime import timedelta

import httpx
import pytest
from hypothesis import given, strategies as st

from agentops_memory.errors import Invalid
from agentops_memory.openintent.changes import lifetime

from ..support.erasing import remains
from ..support.openintent_agents import BATCH, MEMORY, Agent, Json, faults, ok, racing, refused
from ..support.requirements import requirement
from ..support.samples import examples, for_each
from ..support.service import Service

MEMBERS = {
    "id", "agent_id", "namespace", "key", "value", "memory_type", "scope", "tags", "ttl", "pinned",
    "priority", "sensitivity", "curated_by", "created_by", "version", "created_at", "updated_at",
    "expires_at",
}  # fmt: skip
NOW = "2030-01-01T12:00:00.000000+00:00"
EXAMPLES = examples(40)


@requirement("OI-13", "OI-27")
def test_an_entry_has_every_member_and_its_version_as_a_tag(ada: Agent) -> None:
    answer = ada.post()
    entry = ok(answer, 201)

    assert entry.keys() == MEMBERS
    assert entry["id"].startswith("mem_")
    assert (entry["version"], entry["created_at"], entry["updated_at"]) == (1, NOW, NOW)
    assert (entry["created_by"], entry["scope"], entry["tags"]) == ("ada", {}, [])
    assert answer.headers["etag"] == '"1"'
    again = ada.get(entry)
    assert (again.json(), again.headers["etag"]) == (entry, '"1"')
    assert ada.ask("HEAD", f"{MEMORY}/{entry['id']}").status_code == 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**19), 10**19) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.slow
@requirement("OI-14", "OI-12")
@EXAMPLES
@given(value=st.dictionaries(st.text(max_size=6), VALUES, max_size=4))
def test_a_value_comes_back_as_it_was_sent(service: Service, value: Json) -> None:
    ada = Agent(service.http)
    ada.ask("DELETE", f"{BATCH}?namespace=notes")
    body = json.dumps(ada.body(value=value)).encode()

    answer = service.http.post(MEMORY, content=body, headers={"X-Agent-ID": "ada"})
    if "\ud800" <= max(json.dumps(value, ensure_ascii=False), default="") <= "\udfff":
        assert answer.status_code == 400
        return
    stored = ada.get(ok(answer, 201)).json()["value"]

    assert json.dumps(stored) == json.dumps(value)  # also the order, and what kind of number


@for_each(
    "sent",
    [b'{"a":1e400}', b'{"a":NaN}', b'{"a":"\\ud800"}', b'{"\\udfff":1}', b"[1]", b'"text"', b"7",
     b"null", b'{"a":' + b"[" * 101 + b"]" * 101 + b"}", b'{"a":123456789012345678901}'],
)  # fmt: skip
@requirement("OI-14", "OI-12")
def test_what_cannot_be_given_back_unchanged_is_refused(ada: Agent, sent: bytes) -> None:
    body = json.dumps(ada.body(value="VALUE")).encode().replace(b'"VALUE"', sent)

    answer = ada.http.post(MEMORY, content=body, headers={"X-Agent-ID": "ada"})

    assert refused(answer) == (400, "INVALID_REQUEST")
    assert ada.query()["total"] == 0


@requirement("OI-22")
def test_a_value_has_64_kilobytes_of_compact_json(ada: Agent) -> None:
    frame = len('{"a":""}')
    largest = {"a": "é" * ((65_536 - frame) // 2)}

    entry = ada.make(value=largest)
    assert ada.get(entry).json()["value"] == largest
    assert faults(ada.post(key="b", value={"a": "é" * ((65_536 - frame) // 2) + "e"})) == ["value"]
    assert ada.query()["total"] == 1


@for_each(
    "fields, named",
    [
        ({"namespace": ""}, ["namespace"]), ({"namespace": "a*"}, ["namespace"]),
        ({"namespace": "a\nb", "key": "a\x00b"}, ["namespace", "key"]),
        ({"key": "k" * 201}, ["key"]),
        ({"key": 7, "value": [], "memory_type": "long"}, ["key", "value", "memory_type"]),
        ({"key": None}, ["key"]), ({"tags": ["a,b"]}, ["tags[0]"]),
        ({"tags": ["a", "", "t" * 101]}, ["tags[1]", "tags[2]"]),
        ({"tags": [str(number) for number in range(21)]}, ["tags"]), ({"tags": "a"}, ["tags"]),
        ({"pinned": "true"}, ["pinned"]), ({"priority": "urgent"}, ["priority"]),
        ({"sensitivity": "secret"}, ["sensitivity"]), ({"ttl": "P1D"}, ["ttl"]),
        ({"ttl": "duration:P0D"}, ["ttl"]), ({"ttl": "task_lifetime"}, ["ttl"]),
        ({"expires_at": "tomorrow"}, ["expires_at"]),
        ({"scope": {"task_id": "t" * 129}}, ["scope.task_id"]), ({"scope": []}, ["scope"]),
        ({"curated_by": "c" * 201}, ["curated_by"]), ({"agent_id": "a b"}, ["agent_id"]),
        ({"agent_id": None}, ["agent_id"]),
    ],
)  # fmt: skip
@requirement("OI-15", "OI-9")
def test_every_fault_of_an_entry_is_named(ada: Agent, fields: Json, named: list[str]) -> None:
    assert faults(ada.post(**fields)) == named
    assert ada.query()["total"] == 0


@requirement("OI-9")
def test_what_is_no_object_and_no_json_is_refused(ada: Agent) -> None:
    for content in (b"", b"[]", b"{", b'{"key": "\xff"}'):
        answer = ada.http.post(MEMORY, content=content, headers={"X-Agent-ID": "ada"})
        assert refused(answer) == (400, "INVALID_REQUEST")
    large = ada.http.post(MEMORY, content=b" " * (1 << 20) + b"{}", headers={"X-Agent-ID": "ada"})
    assert refused(large) == (413, "TOO_LARGE")


@for_each(
    "ttl, seconds",
    [
        ("duration:PT1S", 1), ("duration:PT0.25S", 0.25), ("duration:P1DT2H3M4S", 93_784),
        ("duration:P1Y", 31_536_000), ("duration:P2M", 5_184_000), ("duration:P1W", 604_800),
        ("duration:P100Y", 3_153_600_000),
        *dict.fromkeys(
            ["", "P1D", "duration:", "duration:P", "duration:PT", "duration:P1", "duration:P0D",
             "duration:-P1D", "duration:P101Y", "duration:P999999999Y", "duration:P1DT",
             "duration:p1d", "duration:P1D ", "duration:PT1.1234567S", "duration:P\u0663D",
             "task_lifetime"]
        ).items(),
    ],
)  # fmt: skip
def test_a_lifetime_is_read_or_refused(ttl: str, seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(Invalid):
            lifetime(ttl)
    else:
        assert lifetime(ttl) == timedelta(seconds=seconds)


@requirement("OI-16", "OI-17", "OI-81")
def test_an_entry_ends_by_what_was_set_else_by_its_ttl(service: Service, ada: Agent) -> None:
    by_ttl = ada.make(key="a", ttl="duration:PT10S")
    both = ada.make(key="b", ttl="duration:PT10S", expires_at="2030-01-01T13:00:20+01:00")
    naive = ada.make(key="c", expires_at="2030-01-01T12:00:30")
    label = ada.make(key="d", ttl="task_lifetime", scope={"task_id": "t1"})

    ends = [each["expires_at"] for each in (by_ttl, both, naive, label)]
    assert ends == [
        "2030-01-01T12:00:10.000000+00:00", "2030-01-01T12:00:20.000000+00:00",
        "2030-01-01T12:00:30.000000+00:00", None,
    ]  # fmt: skip
    assert faults(ada.post(key="e", expires_at=NOW)) == ["expires_at"]

    service.clock.advance(seconds=4)
    reset = ok(ada.patch(by_ttl, ttl="duration:PT10S"))
    assert reset["expires_at"] == "2030-01-01T12:00:14.000000+00:00"
    repeated = ok(ada.patch(both, ttl=both["ttl"], expires_at=both["expires_at"]))
    assert repeated["expires_at"] == both["expires_at"]
    by_its_ttl = ok(ada.patch(repeated, expires_at=None))
    assert by_its_ttl["expires_at"] == "2030-01-01T12:00:14.000000+00:00"
    for_ever = ok(ada.patch(naive, expires_at=None))
    assert for_ever["expires_at"] is None
    assert ok(ada.patch(reset, ttl=None))["expires_at"] is None


@requirement("OI-81", "OI-21", "OI-11")
def test_at_its_end_an_entry_is_not_there_and_its_key_is_free(service: Service, ada: Agent) -> None:
    entry = ada.make(ttl="duration:PT10S", memory_type="working")
    service.clock.advance(seconds=10, microseconds=-1)
    assert ada.found() == ["apple"]

    service.clock.advance(microseconds=1)

    unknown = ada.ask("GET", f"{MEMORY}/mem_{'0' * 32}")
    for answer in (ada.get(entry), ada.patch(entry), ada.delete(entry)):
        assert refused(answer) == (404, "ENTRY_NOT_FOUND")
        assert answer.content == unknown.content
    assert ada.query()["total"] == 0
    assert ada.summary()["working"]["entry_count"] == 0
    assert refused(ada.ask("POST", BATCH, {"entries": [ada.body(
        memory_type="working", version=1)]})) == (404, "ENTRY_NOT_FOUND")  # fmt: skip
    assert ada.make(memory_type="working")["id"] != entry["id"]
    assert ada.told() == [("created", "apple"), ("expired", "apple"), ("created", "apple")]


@requirement("OI-19", "OI-21", "OI-25")
def test_one_live_entry_lies_at_a_place(service: Service, ada: Agent) -> None:
    entry = ada.make()
    for other in ({"namespace": "others"}, {"key": "pear"}, {"memory_type": "working"}):
        ada.make(**other)
    Agent(service.http, "bob").make()

    answer = ada.post(value={"colour": "red"})

    assert refused(answer) == (409, "VERSION_MISMATCH")
    told = answer.json()
    assert (told["current_version"], told["current_value"]) == (1, {"colour": "green"})
    assert told["current"] == entry


@requirement("OI-20", "OI-50")
def test_a_semantic_entry_lies_at_its_namespace_and_key_whoever_makes_it(service: Service) -> None:
    ada, bob = Agent(service.http), Agent(service.http, "bob")
    body = ada.body(memory_type="semantic", curated_by="Zoë")
    del body["agent_id"]

    entry = ok(ada.ask("POST", MEMORY, body), 201)

    assert (entry["agent_id"], entry["curated_by"]) == ("ada", "Zoë")
    assert refused(bob.post(memory_type="semantic")) == (409, "VERSION_MISMATCH")
    assert ok(bob.patch(entry, value={}))["agent_id"] == "ada"


@requirement("OI-19", "OI-26", "OI-10")
def test_of_racing_writers_one_succeeds_and_the_others_are_told_what_won(ada: Agent) -> None:
    made = racing(12, lambda number: ada.post(value={"by": number}))
    (entry,) = [answer.json() for answer in made if answer.status_code == 201]
    assert [it.json()["current"] for it in made if it.status_code == 409] == [entry] * 11

    changed = racing(12, lambda number: ada.patch(entry, value={"by": number}))
    (after,) = [answer.json() for answer in changed if answer.status_code == 200]
    assert [it.json()["current"] for it in changed if it.status_code == 409] == [after] * 11
    assert after["version"] == 2


@requirement("OI-23", "OI-27", "OI-9", "OI-83")
def test_a_change_says_of_which_version_it_is(ada: Agent) -> None:
    entry = ada.make()
    path = f"{MEMORY}/{entry['id']}"

    def changed(match: str, method: str = "PATCH") -> httpx.Response:
        return ada.ask(method, path, {"value": {}}, headers={"If-Match": match})

    assert refused(ada.ask("PATCH", path, {})) == (428, "VERSION_REQUIRED")
    assert refused(changed("")) == (428, "VERSION_REQUIRED")
    for match in ("*", '"1", "2"', "one", "-1", "1.0", "W/1", '"1', "9" * 19):
        assert refused(changed(match)) == (400, "INVALID_REQUEST"), match
    for match in ("2", '"2"', "0"):
        assert refused(changed(match)) == (409, "VERSION_MISMATCH")
    assert refused(changed("2", "DELETE")) == (409, "VERSION_MISMATCH")
    assert ada.get(entry).json() == entry
    assert ok(changed("1"))["version"] == 2
    assert ok(changed('"2"'))["version"] == 3
    assert ok(changed('W/"3"'))["version"] == 4
    assert ok(changed('"4"', "DELETE")) == {"status": "deleted", "entry_id": entry["id"]}
    assert refused(ada.get(entry)) == refused(ada.delete(entry)) == (404, "ENTRY_NOT_FOUND")
    assert ada.make()["id"] != entry["id"]


@requirement("OI-24", "OI-28")
def test_a_change_is_partial_and_each_makes_a_version(service: Service, ada: Agent) -> None:
    entry = ada.make(tags=["a", "b", "a"], sensitivity="internal", curated_by="Zoë", pinned=True)
    assert entry["tags"] == ["a", "b"]
    service.clock.advance(seconds=1)

    after = ok(ada.patch(entry, priority="high"))

    same = entry | {"priority": "high", "version": 2}
    assert after == same | {"updated_at": "2030-01-01T12:00:01.000000+00:00"}
    assert ok(ada.patch(after))["version"] == 3
    left = ok(ada.patch(entry, 3, value=None, tags=None, pinned=None, priority=None))
    assert (left["value"], left["tags"], left["pinned"]) == (entry["value"], ["a", "b"], True)
    cleared = ok(ada.patch(entry, 4, sensitivity=None, curated_by=None, tags=[], unknown=7))
    assert (cleared["sensitivity"], cleared["curated_by"], cleared["tags"]) == (None, None, [])


@pytest.mark.slow
@requirement("OI-28")
def test_what_identifies_an_entry_may_be_repeated_and_not_changed(ada: Agent) -> None:
    entry = ada.make(scope={"task_id": "t1"})

    repeated = ok(ada.patch(entry, **entry))
    assert repeated["value"] == entry["value"]
    for name, value in {
        "id": "mem_x", "agent_id": "bob", "namespace": "others", "key": "pear", "scope": {},
        "memory_type": "working", "created_by": "bob", "created_at": "2029-01-01T00:00:00Z",
    }.items():  # fmt: skip
        assert faults(ada.patch(repeated, None, **{name: value})) == [name]
    assert faults(ada.patch(repeated, version=7)) == ["version"]
    assert faults(ada.patch(repeated | {"id": "mem_x"}, version=7)) == ["version"]
    assert ada.get(entry).json() == repeated


@requirement("OI-2", "OI-15", "OI-96")
def test_what_is_no_route_is_refused_in_the_same_shape(ada: Agent) -> None:
    entry = ada.make()
    for path in (
        "/api/v1", "/api/v1/", "/api/v1/nothing", f"{MEMORY}/", "/api/v1/plans",
        "/api/v1/memory/namespaces/", "/api/v1/memory/namespaces/a/b",
        "/api/v1/memory/namespaces/%FF", "/api/v1/agents/ada/memory/a/b/c", f"{MEMORY}/x/y",
        "/api/v1%2Fmemory", f"{MEMORY}%2f{entry['id']}", "/api/v1/agents/ada%2Fmemory",
    ):  # fmt: skip
        assert refused(ada.ask("GET", path)) == (404, "NOT_FOUND"), path
    for method, path, allowed in [
        ("PUT", MEMORY, "GET, HEAD, POST"), ("GET", "/api/v1/intents", "POST"),
        ("DELETE", f"{MEMORY}/namespaces", "GET, HEAD"),  # a word that has a route is no id
        ("PATCH", f"{MEMORY}/batch", "DELETE, POST"), ("DELETE", f"{MEMORY}/search", "GET, HEAD"),
    ]:  # fmt: skip
        answer = ada.ask(method, path, {})
        assert refused(answer) == (405, "METHOD_NOT_ALLOWED")
        assert answer.headers["allow"] == allowed
    assert refused(ada.ask("GET", f"{MEMORY}/batches")) == (404, "ENTRY_NOT_FOUND")
    for name in (".", ".."):  # which clients fold
        assert refused(Agent(ada.http, name).post(agent_id=name))[0] == 400
    stores = ada.ask("GET", "/api/v1/cloud/nothing").json()
    assert stores["type"] == "error"


@requirement("OI-87")
def test_secrets_are_taken_out_of_all_that_is_stored(service: Service, ada: Agent) -> None:
    secret = "AKIAIOSFODNN7EXAMPLE"  # noqa: S105 - an example of AWS
    value = {"password": "hunter2-hunter2", "list": [secret], secret: {"deep": f"x {secret}"}}
    answer = ada.post(
        namespace=f"of {secret}", key=secret, value=value, tags=[secret], curated_by=secret
    )
    entry = ok(answer, 201)

    assert int(answer.headers["x-redacted"]) == 8
    assert entry["value"]["password"] == "[REDACTED:password]"  # noqa: S105 - what stands for it
    for text in (answer.text, ada.ask("GET", f"/api/v1/agents/{ada.id}/events").text):
        assert secret not in text
        assert "hunter2" not in text
    assert remains(service.path.parent, "hunter2") == set()
    assert ada.found(namespace=f"of {secret}", key=secret, tags=secret) == [entry["key"]]
    after = ada.patch(entry, value={"token": f"Bearer {secret}"})
    assert secret not in after.text
    assert refused(Agent(service.http, secret).post(agent_id=secret)) == (400, "INVALID_REQUEST")


@requirement("OI-88")
def test_a_write_under_a_key_is_made_once_for_one_agent(service: Service, ada: Agent) -> None:
    once = Agent(service.http, "ada", {"Idempotency-Key": "k1"})
    bob = Agent(service.http, "bob", {"Idempotency-Key": "k1"})
    first = once.post()
    entry = ok(first, 201)
    ada.patch(entry, value={"colour": "red"})

    again = once.post()

    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    assert again.content == first.content
    assert refused(once.post(key="pear")) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert ok(bob.post(), 201)["agent_id"] == "bob"
    one = {"Idempotency-Key": "k2"}
    assert [ada.delete(entry, **one).status_code for _ in range(2)] == [200, 200]
    assert refused(once.post()) == (404, "ENTRY_NOT_FOUND")
