"""Registered values and shapes of secrets: what stands in their place, and none is echoed."""

from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path

import httpx
import pytest
from hypothesis import assume, given, strategies as st

from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.openwop_hosts import Host, faults, ok, refused
from ..support.openwop_tenants import (
    EXAMPLES,
    NEVER,
    SECRET,
    anew,
    counted,
    of_one,
    page,
    provenance,
)
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

VALUE = "Xylographer.77"
MARKER = "[REDACTED:db-password]"
_RUNS = count()


@pytest.fixture
def host(service: Service) -> Host:
    """A host in a run that has registered a value."""
    made = Host(service.http).in_run("r1")
    assert made.register("db-password", VALUE) == {"secretId": "db-password", "registered": True}
    return made


@pytest.mark.slow
@requirement("OW-37", "OW-40")
def test_a_registered_value_is_neither_on_disk_nor_in_the_index(
    service: Service, host: Host, tmp_path: Path
) -> None:
    answer = host.post(f"It is {VALUE}, twice {VALUE}.", tags=[VALUE, f"a {VALUE}", "kept"])
    made = ok(answer, 201)["entry"]

    assert answer.headers["x-redacted"] == "4"
    assert made["content"] == f"It is {MARKER}, twice {MARKER}."
    assert made["tags"] == [MARKER, f"a {MARKER}", "kept"]
    live = replace(host, run=None)
    assert ok(live.get(made["id"]))["entry"] == made
    assert live.search("twice") == [made]
    for words in ("xylographer", "xylographers", "xylo"):
        assert live.search(words) == []
    assert live.entries(tag=MARKER) == [made]
    assert counted(live) == {host.ref: (1, len(made["content"].encode()))}
    told = host.ask("GET", "/runs/r1/events").text + provenance(live, made["id"]).text
    assert VALUE not in told
    assert_index_is_whole(service.path)
    sums = [sha256(text.encode()) for text in (VALUE, VALUE.lower())]
    digests = [digest for it in sums for digest in (it.digest(), it.hexdigest().encode())]
    held = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(digest in content for digest in digests for content in held)
    assert not remains(tmp_path, VALUE, "xylograph")
    assert live.put("plain").keys() >= {"id"}
    assert live.post("plain").headers.get("x-redacted", "0") == "0"


@pytest.mark.slow
@requirement("OW-37")
def test_the_marker_has_the_secrets_id_in_our_signs(host: Host) -> None:
    for number, (name, shown) in enumerate(
        [("conformance-test-secret", "conformance-test-secret"), ("A.b_c-1", "A.b_c-1"),
         ("key/\u00e9 b", "key-b"), ("i" * 64, "i" * 64), ("a]b", "a-b")]
    ):  # fmt: skip
        value = f"xylotomist+{number}"
        host.register(name, value)
        assert host.put(f"<{value}>")["content"] == f"<[REDACTED:{shown}]>"


@requirement("OW-38")
def test_seven_characters_stay_and_eight_go(host: Host) -> None:
    for number, (value, is_kept) in enumerate(
        [("1234567", True), ("12345678", False), ("\U0001f332" * 7, True), ("\u4f1a" * 8, False),
         ("1", True), ("\u00e9" * 4, True)]
    ):  # fmt: skip
        run = anew(host).in_run(f"run{number}")
        answer = run.register("s", value)
        assert answer == {"secretId": "s", "registered": not is_kept}
        assert run.put(f"a{value}b")["content"] == (f"a{value}b" if is_kept else "a[REDACTED:s]b")


@requirement("OW-38")
def test_of_values_that_overlap_the_longest_is_taken_first(host: Host) -> None:
    for name, value in (
        ("short", "abcdefgh"), ("long", "cdefghijkl"), ("outer", "0abcdefgh0"),
        ("same", "abcdefgh"),
    ):  # fmt: skip
        host.register(name, value)

    assert host.put("xabcdefghijklx")["content"] == "x[REDACTED:long]x"
    assert host.put("0abcdefgh0")["content"] == "[REDACTED:outer]"
    content = host.put("abcdefgh abcdefghabcdefgh")["content"]
    assert content in {
        f"[REDACTED:{name}] [REDACTED:{name}][REDACTED:{name}]" for name in ("short", "same")
    }
    assert host.put("ABCDEFGH")["content"] == "ABCDEFGH"  # compared sign by sign
    assert host.put("abcd efgh")["content"] == "abcd efgh"


SIGNS = "ab.*+?()[]{}|\\^$"
VALUES = st.text(SIGNS, min_size=6, max_size=11)


@pytest.mark.slow
@EXAMPLES
@given(
    values=st.lists(VALUES, min_size=1, max_size=4, unique=True),
    beside=st.lists(VALUES | st.sampled_from(["", " ", "stays"]), min_size=2, max_size=4),
)
@requirement("OW-37", "OW-38")
def test_no_value_is_stored_and_what_is_none_stays_as_it_is(
    service: Service, values: list[str], beside: list[str]
) -> None:
    host = anew(Host(service.http)).in_run(f"drawn {next(_RUNS)}")
    for number, value in enumerate(values):
        host.register(f"s{number}", value)
    hidden = {it: f"[REDACTED:s{n}]" for n, it in enumerate(values) if len(it) >= 8}
    plain, between = " ".join(beside), beside[0]
    assume(plain.strip())
    parts = [part for value in values for part in (value, between)]
    mixed = "#".join(parts)  # a sign that no value has

    contents = [host.put(text, tags=[text])["content"] for text in (plain, mixed, values[0] * 2)]
    host.end()

    if not any(value in plain for value in hidden):
        assert contents[0] == plain
    if between in hidden or not any(value in between for value in hidden):
        assert contents[1] == "#".join(hidden.get(part, part) for part in parts)
    for entry in replace(host, run=None).entries():
        for text in (entry["content"], *entry["tags"]):
            assert not any(value in text for value in hidden)


@pytest.mark.slow
@for_each(
    "text, stored",
    [
        ("[BYOK:anthropic]", "[REDACTED:byok]"),
        ("a [BYOK:x y] b [BYOK:z]", "a [REDACTED:byok] b [REDACTED:byok]"),
        ("<REDACTED:conformance-test-secret>", "[REDACTED:conformance-test-secret]"),
        ("<REDACTED:my key>", "[REDACTED:my-key]"),
        ("x sk-" + "a1B2_-c3" * 2 + " y", "x [REDACTED:openai-key] y"),
        ("(sk-" + "a" * 15 + "1)", "([REDACTED:openai-key])"), ("sk-" + "a" * 14 + "1", None),
        ("sk-" + "abcdefgh" * 3, None), ("[REDACTED:already]", None),
        ("BYOK:x and REDACTED:y", None), ("[BYOK] <REDACTED>", None),
    ],
)  # fmt: skip
@requirement("OW-41")
def test_known_shapes_are_rewritten_at_every_write(
    service: Service, text: str, stored: str | None
) -> None:
    for host in (Host(service.http), Host(service.http).in_run(f"run {next(_RUNS)}")):
        made = host.put(f"heron {text}", tags=[f"t {text}"])
        wanted = text if stored is None else stored
        assert (made["content"], made["tags"]) == (f"heron {wanted}", [f"t {wanted}"])
        assert replace(host, run=None).entries()[0] == made
    if stored is not None:
        assert not remains(service.path.parent, text)


@pytest.mark.slow
@requirement("OW-41", "OW-26")
def test_the_same_put_with_a_secret_in_it_is_the_same(service: Service) -> None:
    host = Host(service.http)
    made = host.put(f"it is {SECRET}", id="plan")

    assert ok(host.post(f"it is {SECRET}", id="plan"))["entry"] == made
    assert host.entries() == [made]
    assert not remains(service.path.parent, SECRET)


@requirement("OW-44", "OW-14")
def test_a_name_that_holds_a_value_is_refused_as_it_cannot_be_rewritten(
    service: Service, host: Host
) -> None:
    for secret in (VALUE, SECRET, "[BYOK:xylophagan]", "<REDACTED:xylophagan>"):
        answers = [
            host.post(id=f"a {secret}"), host.post(nodeId=secret), host.post(agentId=secret),
            host.post(memoryRef=f"mem://{secret}"),
            host.ask("POST", "/runs", {"runId": f"of {secret}"}),
            host.ask("POST", "/runs", {"runId": "r2", "workflowId": secret}),
        ]  # fmt: skip
        for answer in answers:
            assert refused(answer) == (400, "validation_error")
            assert secret not in answer.text
        at = replace(host, ref=f"mem://{secret}", run=None)
        assert page(at)["entries"] == at.search("apples") == []
        for answer in of_one(at, NEVER):
            assert refused(answer) == (404, "not_found")
    live = replace(host, run=None)
    assert live.entries() == []
    assert counted(live) == {}
    assert not remains(service.path.parent, VALUE, SECRET, "xylophagan")


def told(answer: httpx.Response) -> str:
    return repr(answer.headers.raw) + answer.text


@pytest.mark.slow
@requirement("OW-40", "OW-96")
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_subject_is_answered_without_a_registered_value_and_still_forgotten(
    service: Service, dry_run: bool
) -> None:
    host = Host(service.http)
    host.put("About her.", tags=[f"subject:{VALUE}"])  # before it was a secret
    host.in_run("r1").register("db-password", VALUE)

    answer = host.forget(VALUE, dryRun=dry_run)

    assert VALUE not in told(answer)
    assert (ok(answer)["subject"], answer.json()["entries"]) == (MARKER, 1)
    assert len(host.entries()) == int(dry_run)
    again = Host(host.http, headers={"Idempotency-Key": "k"})
    assert {again.forget(VALUE).content for _ in range(2)} == {again.forget(VALUE).content}
    assert VALUE not in again.forget(VALUE).text


@requirement("OW-40")
def test_an_id_that_was_no_secret_is_deleted_and_not_echoed(service: Service) -> None:
    host = Host(service.http)
    host.put(id=f"of {VALUE}")
    host.in_run("r1").register("db-password", VALUE)

    answer = host.delete(f"of {VALUE}")

    assert ok(answer) == {"memoryRef": host.ref, "memoryId": f"of {MARKER}", "removed": True}
    assert host.entries() == []


@requirement("OW-40", "OW-44")
@pytest.mark.parametrize("value", ["short", "wombat-wombat"])
def test_an_id_of_a_secret_that_holds_another_runs_value_is_400_and_not_stored(
    service: Service, host: Host, value: str
) -> None:
    other = host.in_run("r2")

    answer = other.ask("POST", "/runs/r2/secrets", {"secretId": f"of {VALUE}", "value": value})

    assert faults(answer) == ["secretId"]
    assert VALUE not in told(answer)
    assert other.put("plain")["content"] == "plain"
    assert remains(service.path.parent, VALUE) == set()


@requirement("OW-40")
def test_a_refused_import_does_not_name_a_member_that_is_a_registered_value(host: Host) -> None:
    value = VALUE.replace(".", "_")  # as a member of a format is called
    Host(host.http, run="r1").register("db-password", value)

    answer = host.http.post("/import", json={value: 1, "b": 2})

    assert answer.status_code == 400
    assert answer.json()["error"].endswith("; this one has b.")
