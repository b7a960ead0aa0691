"""What goes wrong between a host and the service: classes, codes, and no text of an entry."""

import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from agentops_memory_client import MemoryClient, NotFound, Unavailable, UnexpectedAnswer
from agentops_memory_client.openwop import MemoryEntry

from ..support.asking import Road, answering, asking
from ..support.openwop_clients import client, kind, memory
from ..support.openwop_hosts import REF, Json
from ..support.requirements import requirement

__all__ = ["client", "kind", "memory"]


@requirement("OW-104")
def test_no_error_holds_the_text_of_an_entry(kind: str) -> None:
    text = "what is stored"
    entry = {"id": "a", "content": text, "tags": [text], "createdAt": "2030-01-01T00:00:00.000Z"}
    naive = entry | {"createdAt": "2030-01-01T00:00:00"}
    for wrong in (entry | {"tags": text}, entry | {"createdAt": text}, naive, text, [entry]):
        road = Road([answering(200, {"entries": [wrong], "ranks": [1.0], "entry": wrong})])
        with asking(kind, road=road) as client:
            memory = client.openwop
            asks: tuple[tuple[Callable[..., object], str], ...] = (
                (memory.list, ""), (memory.get, "a"), (memory.search, "q"), (memory.put, text),
            )  # fmt: skip
            for ask, word in asks:
                with pytest.raises(UnexpectedAnswer) as failure:
                    ask(*(it for it in (REF, word) if it))
                error = failure.value
                assert text not in "".join(traceback.format_exception_only(error))
                assert (error.__cause__, error.__context__) == (None, None)


@requirement("OW-104")
def test_only_an_entry_that_is_not_there_is_none(kind: str, client: MemoryClient) -> None:
    unknown = client.openwop.run("never-opened")
    asks: tuple[Callable[[], object], ...] = (
        lambda: unknown.memory.list(REF), lambda: unknown.memory.get(REF, "a"),
        lambda: unknown.delete(REF, "a"), lambda: unknown.put(REF, "text"), unknown.end,
    )  # fmt: skip
    for ask in asks:
        with pytest.raises(NotFound, match=r"^run not found$") as refusal:
            ask()
        assert refusal.value.code == "not_found"
    other = answering(404, {"error": "No such path."})  # of a service without this protocol
    with asking(kind, road=Road([other])) as elsewhere, pytest.raises(NotFound):
        elsewhere.openwop.get(REF, "a")


@requirement("OW-104")
def test_answers_that_do_not_fit_are_unexpected(kind: str) -> None:
    entry = {"id": "a", "content": "c", "tags": [], "createdAt": "2030-01-01T00:00:00.000Z"}
    wrong: tuple[object, ...] = ({"entries": [entry], "ranks": []}, {"entries": [entry]}, {}, [])
    for said in wrong:
        road = Road([answering(200, said)])
        with asking(kind, road=road) as client, pytest.raises(UnexpectedAnswer):
            client.openwop.search(REF, "q")
    with (
        asking(kind, road=Road([answering(200, {"runId": "r2", "status": "running"})])) as client,
        pytest.raises(UnexpectedAnswer, match="another run"),
    ):
        client.openwop.run("r1").open()


@requirement("OW-104")
def test_a_refusal_has_a_code_and_a_sentence(kind: str) -> None:
    fields = [{"field": "tag", "problem": "is long"}, {"field": "limit", "problem": "is odd"}]
    details: Json = {"details": {"fields": fields}}
    cases: tuple[tuple[Json, str], ...] = (
        ({}, "No."), (details, "No. tag is long; limit is odd."), ({"details": None}, "No."),
        ({"details": {"correlationId": "x"}}, "No."),
    )  # fmt: skip
    for more, sentence in cases:
        said = {"error": "a_code", "message": "No.", **more}
        road = Road([answering(503, said, headers={"retry-after": "1"})])
        with asking(kind, road=road, retries=0) as client, pytest.raises(Unavailable) as refusal:
            client.openwop.list(REF)
        assert (str(refusal.value), refusal.value.code) == (sentence, "a_code")
        assert refusal.value.retry_after == timedelta(seconds=1)


@requirement("OW-104")
def test_times_are_read_as_they_are_meant(kind: str) -> None:
    entry = {
        "id": "a", "content": "c", "tags": ["t"], "createdAt": "2030-01-01T02:00:00.125+02:00",
        "expiresAt": "2030-01-02T00:00:00.000Z", "added": "by a newer service",
    }  # fmt: skip
    with asking(kind, road=Road([answering(200, {"entry": entry})])) as client:
        found = client.openwop.get(REF, "a")

    assert found == MemoryEntry(
        id="a", content="c", tags=("t",),
        created_at=datetime(2030, 1, 1, 0, 0, 0, 125_000, tzinfo=UTC),
        expires_at=datetime(2030, 1, 2, tzinfo=UTC),
    )  # fmt: skip
