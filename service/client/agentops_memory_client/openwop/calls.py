"""The questions of OpenWOP, as `contract.calls` has those of AgentOps REST."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from ..contract.call import Call, given, instant, listed, once, present
from ..contract.calls import MAX_PROMPT
from ..contract.errors import Invalid, UnexpectedAnswer
from ..contract.reading import Headers, Reader, T, json_object, read_as
from .models import (
    EventPage,
    MemoryEntry,
    Provenance,
    RankedEntry,
    RefExtent,
    RefPage,
    RunEvent,
)

HOST = ("v1", "host", "agentops-memory")
NO_ENTRY = "memory entry not found"  # the one sentence for whatever is not there
LONGEST = 256  # code points of a ref, or of an entry's id

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether a text can be a ref, or an id, of a request: others are sent as another, or as none.

    The service has the other rules of what is malformed.
    """
    return 0 < len(text) <= LONGEST and "\0" not in text and not _SURROGATE.search(text)


def list_entries(
    memory_ref: str,
    *,
    limit: int | None,
    tag: str | None,
    token_budget: int | None,
    before: str | None,
    run_id: str | None,
) -> Call[tuple[MemoryEntry, ...]]:
    query = _query(
        memoryRef=memory_ref, limit=limit, tag=tag, tokenBudget=token_budget, before=before,
        runId=run_id,
    )  # fmt: skip
    return _asking("list", "memory", query=query, read=_members("entries", MemoryEntry))


def get_entry(memory_ref: str, memory_id: str, *, run_id: str | None) -> Call[MemoryEntry]:
    query = _query(memoryRef=memory_ref, runId=run_id)
    return _asking("get", "memory", memory_id, query=query, read=_entry)


def put_entry(  # noqa: PLR0913 - the fields of an entry, each by its name
    memory_ref: str,
    content: str,
    *,
    tags: Sequence[str],
    expires_at: datetime | None,
    ttl_seconds: int | None,
    supersedes: Sequence[str],
    id: str | None,  # noqa: A002 - the protocol's word
    idempotency_key: str | None,
    run_id: str | None = None,
    node_id: str | None = None,
    agent_id: str | None = None,
) -> Call[MemoryEntry]:
    fields = {
        "memoryRef": memory_ref, "content": content, "tags": listed(tags),
        "expiresAt": instant(expires_at), "ttlSeconds": ttl_seconds,
        "supersedes": listed(supersedes) or None, "id": id, "runId": run_id, "nodeId": node_id,
        "agentId": agent_id,
    }  # fmt: skip
    return _telling("put", "memory", body=fields, headers=once(idempotency_key), read=_entry)


def delete_entry(
    memory_ref: str, memory_id: str, *, run_id: str | None, idempotency_key: str | None
) -> Call[bool]:
    return Call(
        operation="openwop_delete", method="DELETE", path=(*HOST, "memory", memory_id),
        query=_query(memoryRef=memory_ref, runId=run_id), headers=once(idempotency_key),
        read=lambda body, _: read_as(bool, json_object(body).get("removed")),
    )  # fmt: skip


def search_entries(
    memory_ref: str,
    query: str,
    *,
    tag: str | None,
    limit: int | None,
    token_budget: int | None,
) -> Call[tuple[RankedEntry, ...]]:
    asked = _query(
        memoryRef=memory_ref, q=query[:MAX_PROMPT], tag=tag, limit=limit, tokenBudget=token_budget
    )
    return _asking("search", "search", query=asked, read=_ranked)


def provenance(memory_ref: str, memory_id: str) -> Call[Provenance]:
    query = _query(memoryRef=memory_ref)
    return _asking(
        "provenance", "provenance", memory_id, query=query,
        read=lambda body, _: read_as(Provenance, json_object(body)),
    )  # fmt: skip


def refs(*, limit: int | None, after: str | None) -> Call[RefPage]:
    def read(body: bytes, headers: Headers) -> RefPage:
        found = _members("refs", RefExtent)(body, headers)
        return RefPage(refs=found, next=read_as(str | None, json_object(body).get("next")))  # type: ignore[arg-type]

    return _asking("refs", "refs", query=_query(limit=limit, after=after), read=read)


def events(*, after: str | None, limit: int | None, type: str | None) -> Call[EventPage]:  # noqa: A002
    def read(body: bytes, headers: Headers) -> EventPage:
        found = _members("events", RunEvent)(body, headers)
        return EventPage(events=found, next=read_as(str, json_object(body).get("next")))

    query = _query(after=after, limit=limit, type=type)
    return _asking("events", "events", query=query, read=read)


def open_run(
    run_id: str, *, agent_id: str | None, workflow_id: str | None, memory_refs: Sequence[str]
) -> Call[None]:
    fields = {
        "runId": run_id, "agentId": agent_id, "workflowId": workflow_id,
        "memoryRefs": listed(memory_refs),
    }  # fmt: skip
    return _telling("open_run", "runs", body=fields, headers=once(None), read=_running(run_id))


def register_secret(run_id: str, secret_id: str, value: str) -> Call[bool]:
    """A value to be registered; without an idempotency key, since not even its digest is kept."""
    return _telling(
        "register_secret", "runs", run_id, "secrets",
        body={"secretId": secret_id, "value": value}, headers={},
        read=lambda body, _: read_as(bool, json_object(body).get("registered")),
    )  # fmt: skip


def end_run(run_id: str, status: str) -> Call[None]:
    return _telling(
        "end_run", "runs", run_id, "end", body={"status": status}, headers=once(None),
        read=_running(run_id),
    )  # fmt: skip


def _asking(name: str, *path: str, query: Mapping[str, str], read: Reader[T]) -> Call[T]:
    return Call(
        operation=f"openwop_{name}", method="GET", path=(*HOST, *path), query=query, read=read
    )


def _telling(
    name: str,
    *path: str,
    body: dict[str, object],
    headers: Mapping[str, str],
    read: Reader[T],
) -> Call[T]:
    return Call(
        operation=f"openwop_{name}", method="POST", path=(*HOST, *path), body=present(body),
        headers=headers, read=read,
    )  # fmt: skip


def _query(**parameters: object) -> Mapping[str, str]:
    """The parameters that are there. Invalid for one that would be sent as another text."""
    query = given(**parameters)
    if faults := [name for name, text in query.items() if _SURROGATE.search(text)]:
        raise Invalid(f"{', '.join(faults)}: a lone surrogate is no text.")
    return query


def _members(name: str, kind: type[T]) -> Reader[tuple[T, ...]]:
    def read(body: bytes, _: Headers) -> tuple[T, ...]:
        found: tuple[T, ...] = read_as(tuple[kind, ...], json_object(body).get(name))  # type: ignore[valid-type]
        return found

    return read


def _entry(body: bytes, _: Headers) -> MemoryEntry:
    return read_as(MemoryEntry, json_object(body).get("entry"))


def _ranked(body: bytes, headers: Headers) -> tuple[RankedEntry, ...]:
    entries = _members("entries", MemoryEntry)(body, headers)
    ranks = _members("ranks", float)(body, headers)
    if len(entries) != len(ranks):
        raise UnexpectedAnswer("The service answers with other ranks than entries.")
    pairs = zip(entries, ranks, strict=True)
    return tuple(RankedEntry(entry=entry, rank=rank) for entry, rank in pairs)


def _running(run_id: str) -> Reader[None]:
    """The reader of a run's state, of which all but the id is known."""

    def read(body: bytes, _: Headers) -> None:
        if json_object(body).get("runId") != run_id:
            raise UnexpectedAnswer("The service answers with another run.")

    return read
