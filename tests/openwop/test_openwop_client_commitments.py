"""Commitments through the Python client, blocking and awaited."""

from datetime import timedelta

import pytest

from agentops_memory_client import Invalid, NotFound
from agentops_memory_client.openwop import Commitment, OpenWopMemory

from ..support.openwop_clients import client, kind, memory
from ..support.openwop_hosts import REF
from ..support.requirements import requirement
from ..support.service import START

__all__ = ["client", "kind", "memory"]

UNKNOWN = "cmt_" + "0" * 32


@requirement("OW-104")
def test_a_predicate_fires_by_the_put_that_makes_it_true(memory: OpenWopMemory) -> None:
    entry = memory.put(REF, "Renew the certificate.")

    armed = memory.commitments.create(REF, entry.id, tag="new-domain")

    assert armed == Commitment(
        id=armed.id, memory_ref=REF, memory_id=entry.id, condition="predicate", tag="new-domain",
        state="armed", created_at=START,
    )  # fmt: skip
    assert memory.commitments.get(armed.id) == armed
    memory.put(REF, "shop.example is ours.", tags=["new-domain"])
    fired = memory.commitments.get(armed.id)
    assert (fired.state, fired.fired_at) == ("fired", START)
    (event,) = memory.events(type="commitment.fired").events
    assert event.payload == {
        "commitmentId": armed.id, "memoryRef": REF, "memoryId": entry.id, "condition": "predicate"
    }  # fmt: skip
    assert memory.commitments.cancel(armed.id) == fired


@requirement("OW-104")
def test_a_time_is_armed_and_cancelled(memory: OpenWopMemory) -> None:
    due = START + timedelta(hours=1)
    entry = memory.put(REF, "Call Bob.")

    armed = memory.commitments.create(REF, entry.id, due_at=due)

    assert (armed.condition, armed.due_at, armed.tag) == ("time", due, None)
    cancelled = memory.commitments.cancel(armed.id)
    assert (cancelled.id, cancelled.state, cancelled.fired_at) == (armed.id, "cancelled", None)


@requirement("OW-104")
def test_commitments_are_listed_in_pages(memory: OpenWopMemory) -> None:
    entries = [memory.put(ref, "Call.") for ref in (REF, REF, "mem://other")]
    made = [
        memory.commitments.create(it_ref, entry.id, tag="bob")
        for it_ref, entry in zip((REF, REF, "mem://other"), entries, strict=True)
    ]
    memory.commitments.cancel(made[0].id)

    page = memory.commitments.list(limit=2)
    rest = memory.commitments.list(limit=2, after=page.next)

    assert {it.id for it in page.commitments + rest.commitments} == {it.id for it in made}
    assert (len(page.commitments), rest.next) == (2, None)
    assert [it.id for it in memory.commitments.list(REF, state="armed").commitments] == [made[1].id]
    assert memory.commitments.list("mem://nobody").commitments == ()


@requirement("OW-104")
def test_what_cannot_be_armed_is_refused(memory: OpenWopMemory) -> None:
    entry = memory.put(REF, "Call Bob.")
    for condition in (
        {}, {"due_at": START - timedelta(seconds=1)}, {"tag": ""}, {"tag": "x" * 257},
    ):  # fmt: skip
        with pytest.raises(Invalid):
            memory.commitments.create(REF, entry.id, **condition)
    with pytest.raises(Invalid):
        memory.commitments.create(REF, entry.id, due_at=START + timedelta(days=1), tag="bob")
    with pytest.raises(NotFound):
        memory.commitments.create(REF, "unknown", tag="bob")
    for id_ in (UNKNOWN, "", "a/b", "\ud800"):
        with pytest.raises(NotFound):
            memory.commitments.cancel(id_)
    for id_ in (UNKNOWN, "a/b", "\ud800"):
        with pytest.raises(NotFound):
            memory.commitments.get(id_)
    with pytest.raises(Invalid):
        memory.commitments.list(state="odd")  # type: ignore[arg-type]
    assert memory.commitments.list().commitments == ()
