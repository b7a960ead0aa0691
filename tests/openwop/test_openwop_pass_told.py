"""What passes leave in traces and measures; and what a tenant that is full may still do.

Words that nothing may tell: `saffron` stands in contents, `tagged` in tags.
"""

from pathlib import Path

import pytest

from ..support.callers import calling, made_key
from ..support.engines import filler, quota
from ..support.measures import key, measured
from ..support.openwop_hosts import REF, H, Host, ok, refused
from ..support.openwop_passes import events, ids, passed
from ..support.openwop_tenants import counted
from ..support.requirements import requirement
from ..support.service import serving
from ..telemetry.test_tracing import traced
from .test_openwop_spans import logged

PREFIX = "memory.openwop_"
PASSES = "memory_openwop_passes_total"
HIDDEN = ("saffron", "tagged")


@requirement("OW-101", "OW-14")
def test_each_pass_has_a_span_that_says_how_much_it_was_about(tmp_path: Path) -> None:
    with logged() as lines, traced(tmp_path) as (service, received):
        host = Host(service.http)
        for _ in range(2):
            host.put("saffron", tags=["tagged"]), host.put("saffron and rice", tags=["tagged"])
        done = [host.consolidate(), host.distill(content="saffron"), host.compact()]
        ok(host.undo(ok(done[2])["runId"]))
        host.index()
        assert refused(host.consolidate({"ids": ["saffron", "tagged"], "content": "saffron"}))
        assert refused(host.distill(tokenBudget=1))
        collector = received()

    used = passed(done[1])["distillation"]["tokensUsed"]
    told: dict[str, list[dict[str, object]]] = {
        "consolidate": [{"memory.pass.input_count": 4, "memory.pass.output_count": 2}, {}],
        "distill": [
            {"memory.pass.input_count": 2, "memory.pass.tokens_used": used,
             "memory.pass.output_bytes": len("saffron")},
            {},
        ],
        "compact": [
            {"memory.pass.input_count": 2, "memory.pass.output_bytes": passed(done[2])["byteSize"]}
        ],
        "index": [{"memory.ref": REF}],
        "undo": [{}],
    }  # fmt: skip
    for name, wanted in told.items():
        spans = collector.all(PREFIX + name)
        assert len(spans) == len(wanted), name
        for span, attributes in zip(spans, wanted, strict=True):
            assert {it: span.attributes.get(it) for it in attributes} == attributes, name
    failed = [it.name for it in collector.spans if it.failed and it.is_server]
    assert sorted(failed) == [f"{PREFIX}consolidate", f"{PREFIX}distill"]
    for word in HIDDEN:
        assert word not in repr(collector.spans)
        assert word not in lines.getvalue()


@requirement("OW-101")
def test_passes_are_counted_by_what_became_of_them(path: Path) -> None:
    token = made_key(path, "admin")
    with serving(path) as service, calling(service, token) as http:
        host = Host(http)
        assert refused(host.compact()) == (409, "nothing_to_compact")
        assert refused(host.distill()) == (409, "nothing_to_distill")
        for text in ("herons wade", "herons wade", "egrets fly"):
            host.put(text)
        ok(host.consolidate()), ok(host.consolidate())
        ok(host.distill()), ok(host.distill())
        once = Host(http, headers={"Idempotency-Key": "k1"})
        ok(once.compact()), ok(once.compact())
        found = measured(service, http)

    counts = {
        (dict(labels)["kind"], dict(labels)["outcome"]): value
        for (name, labels), value in found.items()
        if name == PASSES and value
    }
    assert counts == {
        ("compaction", "refused"): 1, ("distillation", "refused"): 1,
        ("consolidation", "done"): 1, ("consolidation", "unchanged"): 1,
        ("distillation", "done"): 1, ("distillation", "unchanged"): 1, ("compaction", "done"): 1,
    }  # fmt: skip
    routes = {dict(labels)["route"] for name, labels in found if name == "memory_requests_total"}
    assert f"{H}/compact" in routes
    assert key(PASSES, kind="compaction", outcome="done") in found


@pytest.mark.heavy
@requirement("OW-66", "OW-71", "OW-93", "OW-29")
def test_a_full_tenant_passes_no_more_but_undoes_and_forgets(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 2048)) as service:
        host, ours = Host(service.http), Host(service.http, "ours")
        for text in ("herons wade", "egrets fly"):
            ours.put(text, tags=["subject:ada"])
        run = ok(ours.distill())["runId"]
        for number in range(1000):
            if (answer := host.post(f"{number} {filler(8000)}")).status_code != 201:
                break
        assert refused(answer) == (507, "quota_exceeded")
        before = host.entries(limit=500), counted(host), len(events(host))

        merge = {"ids": ids(ours.entries()[1:]), "content": "birds"}
        answers = [
            host.compact(), host.consolidate(), ours.compact(), ours.distill(tokenBudget=90),
            ours.consolidate(merge),
        ]  # fmt: skip

        assert {refused(it) for it in answers} == {(507, "quota_exceeded")}
        assert (host.entries(limit=500), counted(host), len(events(host))) == before
        assert ok(ours.undo(run))["removed"] == 1
        assert ok(ours.forget("ada"))["entries"] == 2
        assert ours.entries() == []


@requirement("OW-10")
def test_passes_are_limited_like_other_requests(path: Path) -> None:
    token = made_key(path, "admin")
    with serving(path, MEMORY_RATE_LIMIT="5/h") as service, calling(service, token) as http:
        host = Host(http)
        for _ in range(5):
            ok(host.consolidate())
        answers = [
            host.consolidate(), host.compact(), host.distill(), host.undo("r"), host.forget("ada")
        ]  # fmt: skip

    for answer in answers:
        assert refused(answer) == (429, "rate_limited")
        assert int(answer.headers["Retry-After"]) >= 1
