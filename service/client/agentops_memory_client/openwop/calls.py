"""The questions of OpenWOP, as `contract.calls` has those of AgentOps REST."""

from collections.abc import Sequence
from datetime import datetime

from ..contract.call import Call, instant, listed
from ..contract.calls import MAX_PROMPT
from ..contract.errors import UnexpectedAnswer
from ..contract.reading import Headers, Reader, json_object
from .models import EventPage, MemoryEntry, Provenance, RankedEntry, RefPage
from .question import HOST, asking, member, members, noun, parameters, telling

NO_ENTRY = "memory entry not found"  # the one sentence for whatever is not there


def list_entries(
    memory_ref: str,
    *,
    limit: int | None,
    tag: str | None,
    token_budget: int | None,
    before: str | None,
    run_id: str | None,
) -> Call[tuple[MemoryEntry, ...]]:
    query = parameters(
        memoryRef=memory_ref, limit=limit, tag=tag, tokenBudget=token_budget, before=before,
        runId=run_id,
    )  # fmt: skip
    return asking("list", "memory", query=query, read=members("entries", MemoryEntry))


def get_entry(memory_ref: str, memory_id: str, *, run_id: str | None) -> Call[MemoryEntry]:
    query = parameters(memoryRef=memory_ref, runId=run_id)
    return asking("get", "memory", memory_id, query=query, read=member("entry", MemoryEntry))


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
    return telling(
        "put", "memory", body=fields, key=idempotency_key, read=member("entry", MemoryEntry)
    )


def delete_entry(
    memory_ref: str, memory_id: str, *, run_id: str | None, idempotency_key: str | None
) -> Call[bool]:
    query = parameters(memoryRef=memory_ref, runId=run_id)
    return telling(
        "delete", "memory", memory_id, method="DELETE", query=query, key=idempotency_key,
        read=member("removed", bool),
    )  # fmt: skip


def search_entries(
    memory_ref: str,
    query: str,
    *,
    tag: str | None,
    limit: int | None,
    token_budget: int | None,
) -> Call[tuple[RankedEntry, ...]]:
    asked = parameters(
        memoryRef=memory_ref, q=query[:MAX_PROMPT], tag=tag, limit=limit, tokenBudget=token_budget
    )
    return asking("search", "search", query=asked, read=_ranked)


def provenance(memory_ref: str, memory_id: str) -> Call[Provenance]:
    query = parameters(memoryRef=memory_ref)
    return asking("provenance", "provenance", memory_id, query=query, read=noun(Provenance))


def refs(*, limit: int | None, after: str | None) -> Call[RefPage]:
    return asking("refs", "refs", query=parameters(limit=limit, after=after), read=noun(RefPage))


def events(*, after: str | None, limit: int | None, type: str | None) -> Call[EventPage]:  # noqa: A002
    query = parameters(after=after, limit=limit, type=type)
    return asking("events", "events", query=query, read=noun(EventPage))


def open_run(
    run_id: str, *, agent_id: str | None, workflow_id: str | None, memory_refs: Sequence[str]
) -> Call[None]:
    fields = {
        "runId": run_id, "agentId": agent_id, "workflowId": workflow_id,
        "memoryRefs": listed(memory_refs),
    }  # fmt: skip
    return telling("open_run", "runs", body=fields, read=_running(run_id))


def register_secret(run_id: str, secret_id: str, value: str) -> Call[bool]:
    """A value to be registered; without an idempotency key, since not even its digest is kept."""
    return Call(
        operation="openwop_register_secret", method="POST", path=(*HOST, "runs", run_id, "secrets"),
        body={"secretId": secret_id, "value": value}, read=member("registered", bool),
    )  # fmt: skip


def end_run(run_id: str, status: str) -> Call[None]:
    return telling("end_run", "runs", run_id, "end", body={"status": status}, read=_running(run_id))


def _ranked(body: bytes, headers: Headers) -> tuple[RankedEntry, ...]:
    entries = members("entries", MemoryEntry)(body, headers)
    ranks = members("ranks", float)(body, headers)
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
