"""Refs: which are malformed or foreign, how they compare, their list; nobody sees another's."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given, strategies as st

from agentops_memory.memory.space import Retentions

from ..memory.test_expiry_swept import swept
from ..support.engines import rows
from ..support.erasing import remains
from ..support.openwop_hosts import Host, ok, refused
from ..support.openwop_tenants import (
    EXAMPLES,
    NEVER,
    anew,
    counted,
    keyed,
    of_one,
    page,
)
from ..support.requirements import requirement
from ..support.service import Service, serving

MALFORMED = [
    "x" * 257, "\U0001f332" * 257, "a\x01b", "\n", "a\x7f", "\x85a", "a\x9fb", "..", "../a", "a/..",
    "a/../b", "..\\a", "a\\..", "a\\../b", "mem://../a",
]  # fmt: skip


class Ways(NamedTuple):
    """What the routes answer of one ref."""

    listed: object
    found: object
    statuses: list[int]
    put: int


def ways(host: Host, ref: str) -> Ways:
    at = replace(host, ref=ref)
    words = {"memoryRef": ref, "q": "apples"}
    return Ways(
        page(at)["entries"], ok(host.ask("GET", "/search", params=words))["entries"],
        [answer.status_code for answer in of_one(at, NEVER)], at.post().status_code,
    )  # fmt: skip


@pytest.fixture(scope="module")
def host(closed: Service) -> Iterator[Host]:
    with keyed(closed) as made:
        yield made


@pytest.mark.slow
@requirement("OW-30")
def test_malformed_refs_are_empty_on_reads_and_refused_on_writes(
    closed: Service, host: Host
) -> None:
    before = counted(host)
    for ref in MALFORMED:
        assert ways(host, ref) == ([], [], [404] * 3, 400), ref
    assert replace(host, ref="").post().status_code == 400
    assert counted(host) == before
    assert not remains(closed.path.parent, "mem://../a")


NUL = ["\0", "a\0b", "\0a", "mem://notes\0", "../\0"]


@pytest.mark.slow
@requirement("OW-30", "OW-11")
def test_a_ref_with_nul_is_malformed_on_reads_and_400_on_writes(host: Host) -> None:
    made = host.put("green apples", id="plan")
    before = counted(host)
    for ref in NUL:
        at = replace(host, ref=ref)
        assert page(at)["entries"] == at.search("apples") == [], ref
        asked = {"memoryRef": ref}
        assert ok(host.ask("GET", "/index", params=asked))["archives"] == []
        assert ok(host.ask("GET", "/commitments", params=asked))["commitments"] == []
        for memory in ("plan", NEVER):
            *reads, deletion = of_one(at, memory)
            assert [refused(it) for it in reads] == [(404, "not_found")] * 2
            assert {it.content for it in reads} == {host.get(NEVER).content}
            assert refused(deletion) == (400, "validation_error")
        for write in (
            at.post(), at.compact(), at.distill(), at.consolidate(),
            at.ask("POST", "/runs", {"memoryRefs": [ref]}),
            at.ask("POST", "/commitments", {**asked, "memoryId": "plan", "condition": "predicate",
                                            "tag": "rain"}),
        ):  # fmt: skip
            assert refused(write) == (400, "validation_error"), ref
    for other in ("tag", "runId", "before"):  # are no refs
        listed = host.ask("GET", "/memory", params={"memoryRef": host.ref, other: "a\0"})
        assert refused(listed) == (400, "validation_error")
    assert ok(host.delete("plan"))["memoryId"] == made["id"]
    assert counted(host) == {ref: it for ref, it in before.items() if ref != host.ref}


@requirement("OW-31")
def test_not_even_a_row_under_a_foreign_ref_is_seen(path: Path) -> None:
    with serving(path) as service, keyed(service) as host:
        at = replace(host, ref="xenants/acme/x")
        made = at.put("green apples", id="plan")
        rows(path, "UPDATE refs SET ref = 'tenants/acme/x' WHERE ref = 'xenants/acme/x'")

        assert ways(host, "tenants/acme/x") == ([], [], [404] * 3, 403)
        never = replace(host, ref="tenants/acme/y")
        foreign = replace(host, ref="tenants/acme/x")
        for known, unknown in zip(of_one(foreign, made["id"]), of_one(never, NEVER), strict=True):
            assert known.content == unknown.content
        assert counted(host).get("tenants/acme/x", (1, 12)) == (1, 12)


PIECES = st.sampled_from(
    ["a", "A", "..", ".", "...", "tenants", "workspaces", "acme", "ACME", "default", "tenant:acme",
     "tenant:default", "mem_tenant:acme_agent:1", "\u00e9", "e\u0301", " ", "\x07", "mem:", ""]
)  # fmt: skip


def verdict(ref: str) -> int:
    """The model: what a put of the tenant `default` is answered."""
    is_control = any(sign < " " or "\x7f" <= sign <= "\x9f" for sign in ref)
    if is_control or ".." in ref.replace("\\", "/").split("/"):
        return 400
    for head, ends in (
        ("workspaces/", ("/",)), ("tenants/", ("/",)), ("tenant:", (":", "/", "")),
        ("mem_tenant:", ("_agent:",)),
    ):  # fmt: skip
        rest = ref.removeprefix(head)
        if rest != ref:
            cuts = [rest.find(end) if end else len(rest) for end in ends]
            if names := [rest[:cut] for cut in cuts if cut >= 0]:
                return 201 if min(names, key=len).lower() == "default" else 403
    return 201


@EXAMPLES
@example(pieces=["tenants", "Default", "x"], by="/")
@given(pieces=st.lists(PIECES, min_size=1, max_size=5), by=st.sampled_from("/\\:"))
@requirement("OW-30", "OW-31", "OW-35")
def test_the_grammar_of_refs_is_no_more_than_this(host: Host, pieces: list[str], by: str) -> None:
    ref, known = by.join(pieces), counted(host)
    assume(ref and not ref.startswith(("tenants//", "workspaces//", "tenant::")))

    told = ways(host, ref)

    assert told.put == verdict(ref)
    if told.put == 201:
        entries, size = known.get(ref, (0, 0))
        assert counted(host) == known | {ref: (entries + 1, size + len("green apples"))}
        assert [it["content"] for it in replace(host, ref=ref).entries()] != []
    else:
        assert (told.listed, told.found, told.statuses) == ([], [], [404] * 3)
        assert counted(host) == known


@requirement("OW-29")
def test_refs_are_listed_in_code_point_order_and_portions(service: Service) -> None:
    host = Host(service.http)
    refs = ["b", "a", "B", "\uffee", "\U0001f332", "\u00e9", "a/b", "~"]
    for ref in refs:
        replace(host, ref=ref).put("\u00e9t\u00e9")

    whole = ok(host.ask("GET", "/refs"))
    assert whole == {"refs": [{"memoryRef": it, "entries": 1, "bytes": 5} for it in sorted(refs)]}
    walked, query = list[str](), dict[str, object]()
    while True:
        portion = ok(host.ask("GET", "/refs", params={"limit": 3, **query}))
        walked += [it["memoryRef"] for it in portion["refs"]]
        if "next" not in portion:
            break
        query = {"after": portion["next"]}
    assert walked == sorted(refs)
    later = ok(host.ask("GET", "/refs", params={"after": "a/a", "limit": 1}))["refs"]
    assert [it["memoryRef"] for it in later] == ["a/b"]
    for wrong in ("-1", "x", "1.5"):
        assert refused(host.ask("GET", "/refs", params={"limit": wrong}))[0] == 400


TEXTS = st.sampled_from(["apple", "\u00e9t\u00e9", "\U0001f332"])
TURNS = st.one_of(
    st.tuples(st.just("put"), TEXTS, st.sampled_from([None, 1, 5, 90])),
    st.tuples(st.just("delete"), st.integers(0, 9), st.none()),
    st.tuples(st.just("pass"), st.sampled_from([1, 4, 60]), st.none()),
    st.tuples(st.just("sweep"), st.none(), st.none()),
)
KEPT = Retentions(expired=timedelta(seconds=1))


@pytest.mark.slow
@EXAMPLES
@given(turns=st.lists(TURNS, max_size=14))
@requirement("OW-29", "OW-45")
def test_counts_are_exact_whatever_is_put_deleted_ended_and_swept(
    service: Service, turns: list[tuple[str, object, object]]
) -> None:
    host, clock = anew(Host(service.http)), service.clock
    held = dict[str, tuple[str, datetime | None]]()  # what counts
    for deed, first, seconds in turns:
        live = [key for key, (_, end) in held.items() if end is None or end > clock.now]
        match deed, first:
            case "put", str() as text:
                made = host.put(text, ttlSeconds=seconds)
                end = clock.now + timedelta(seconds=seconds) if isinstance(seconds, int) else None
                held[made["id"]] = text, end
            case "delete", int() as place if live:
                doomed = live[place % len(live)]
                ok(host.delete(doomed))
                del held[doomed]
            case "pass", int() as some:
                clock.advance(seconds=some)
            case "sweep", _:
                clock.advance(seconds=10)
                swept(service, clock.now, KEPT)
                due = clock.now - timedelta(seconds=1)
                held = {key: it for key, it in held.items() if it[1] is None or it[1] > due}

    size = sum(len(text.encode()) for text, _ in held.values())
    assert counted(host).get(host.ref, (0, 0)) == (len(held), size)
    live = [key for key, (_, end) in held.items() if end is None or end > clock.now]
    assert sorted(it["id"] for it in host.entries()) == sorted(live)
