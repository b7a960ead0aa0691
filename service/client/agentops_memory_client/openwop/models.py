"""The results of OpenWOP calls as frozen dataclasses, and the declaration of the client's methods.

Fields have the names and meanings of OpenWOP, in snake case.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any, ClassVar, Concatenate, get_args

from pydantic import AwareDatetime, ConfigDict
from pydantic.alias_generators import to_camel

from ..contract import models as contract, service
from ..contract.models import Headers, NotFound, Reader, json_object, read_as
from ..contract.service import UNSET, Call, Method, P, Sender, T
from ..transport import SURROGATE, Exchange

__all__ = [
    "Compaction", "Consolidation", "Distillation", "EventPage", "Forgotten", "MemoryEntry", "Merge",
    "Provenance", "RankedEntry", "RunEvent", "Undone", "WrittenBy", "memory_degradation",
]  # fmt: skip

LONG_TERM = "long-term"  # the value of memoryBackends for the dimension long-term-durability


class Noun(contract.Noun):
    """Base of results whose JSON has camel-case names."""

    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel)


class MemoryEntry(Noun):
    """An entry of a memory ref, which never changes; the id is unique within the ref."""

    id: str
    content: str
    tags: tuple[str, ...]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None


class RankedEntry(Noun):
    entry: MemoryEntry
    rank: float  # lower is better


class WrittenBy(Noun):
    run_id: str | None = None
    node_id: str | None = None
    agent_id: str | None = None


class Provenance(Noun):
    """The origin of an entry: its writer, its sources, and the entries that supersede it."""

    memory_ref: str
    memory_id: str
    written_by: WrittenBy
    method: str  # put, or the kind of pass that derived the entry
    derived_from: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    seen: int
    last_seen_at: AwareDatetime


class RunEvent(Noun):
    """An event of a run, without content of memory; a run's sequence numbers have no gaps."""

    event_id: str
    run_id: str
    type: str
    payload: Mapping[str, Any] = field(hash=False)
    timestamp: AwareDatetime
    sequence: int
    node_id: str | None = None


class EventPage(Noun):
    events: tuple[RunEvent, ...]
    next: str  # never None: pass it as `after` later to get newer events


class Compaction(Noun):
    run_id: str  # the id of the pass, for `undo`
    memory_ref: str
    output_id: str  # the id of the archive that replaces its sources
    source_ids: tuple[str, ...] | None = None  # None if there are more than are named
    source_count: int
    trigger: str
    byte_size: int


class Distillation(Compaction):
    """The outcome of a distillation; `created` is False if the archive existed already."""

    token_budget: int
    tokens_used: int
    archive_checksum: str  # SHA-256 of the archive's text
    created: bool


class Merge(Noun):
    """A text that replaces 2 to 100 entries, named by their ids."""

    ids: Sequence[str]
    content: str
    tags: Sequence[str] = ()


class Consolidation(Noun):
    """The outcome of a consolidation, with the number of listed entries before and after it."""

    run_id: str
    memory_ref: str
    input_count: int
    output_count: int
    merged_ids: tuple[str, ...] | None = None  # None if there are more than are named
    trigger: str


class Undone(Noun):
    """The numbers of entries that undoing a pass restored and removed."""

    run_id: str
    restored: int
    removed: int


class Forgotten(Noun):
    """What was, or would be, erased of a subject; `restored` counts entries listed again."""

    subject: str = field(repr=False)  # hidden, so that no log shows a forgotten subject
    entries: int
    archives: int
    restored: int
    commitments: int
    erasure_id: str | None = None  # of the receipt; None if nothing was erased
    dry_run: bool = False


def memory_degradation(
    shape: Mapping[str, Any], advertisement: Mapping[str, Any]
) -> dict[str, bool | list[str]]:
    """Return what a host lacks of an agent's `memoryShape`, as inventory fields (RFC 0080).

    `advertisement` is the host's discovery document, or its `capabilities`. The result is empty if
    nothing is missing, else has `memoryDegraded` and `degradedMemoryDimensions` in RFC order.
    """
    memory = _family(advertisement, "memory")
    backends = _family(advertisement, "agents").get("memoryBackends")
    reads = memory.get("supported") is True
    has = {
        "read": reads,
        "write": reads and memory.get("writable") is not False,
        "long-term-durability": isinstance(backends, list | tuple) and LONG_TERM in backends,
    }
    uses = {it for it in ("scratchpad", "conversation", "longTerm") if shape.get(it) is True}
    required = [*has] if "longTerm" in uses else ["read", "write"] if uses else []
    lacking = [name for name in required if not has[name]]
    return {"memoryDegraded": True, "degradedMemoryDimensions": lacking} if lacking else {}


def _family(host: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a capability family from the root or, for older hosts, from `capabilities`."""
    wrapper = host.get("capabilities")
    parents = (host, wrapper if isinstance(wrapper, Mapping) else {})
    return next((it[name] for it in parents if isinstance(it.get(name), Mapping)), {})


Json = dict[str, Any]
Answer = str | Callable[[Json], object]  # the member of a response to return, or a function of it

BASE = ("v1", "host", "agentops-memory")
NO_ENTRY = "memory entry not found"  # the service's message for any missing entry
MAX_NAME = 256  # code points of a ref or of an entry's id


class Part(Sender):
    """Base of the parts of the OpenWOP client."""

    _exchange: Exchange

    def __init__(self, exchange: Exchange, run_id: str | None = None) -> None:
        self._exchange, self._run_id = exchange, run_id

    async def _send(self, call: Call[T], /) -> T:
        absent, names = call.absent, (call.path[-1], *call.query.get("memoryRef", ()))
        if absent is not UNSET and not all(map(_is_name, names)):
            return absent
        try:
            return await super()._send(call)
        except NotFound as error:
            if absent is UNSET or str(error) != NO_ENTRY:
                raise
            return absent


def sends(
    verb: str, path: str, *, answer: Answer = "", absent: Any = UNSET,
    timeout: timedelta | None = None,
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:  # fmt: skip
    """Declare a method of a Part by its signature, as `service.sends` does.

    `absent` is returned if the entry does not exist, or if no entry can have the name.
    """

    def declare(declaration: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        returned = inspect.signature(declaration).return_annotation
        read = reader(get_args(returned)[0] if absent is None else returned, answer)
        whole = "/".join([*BASE, path])
        return service.sends(
            whole, verb, whole, read=read, absent=absent, timeout=timeout, rename=to_camel
        )(declaration)

    return declare


def reader(kind: type[T], answer: Answer = "") -> Reader[T]:
    """Return a reader of a JSON response."""

    def read(body: bytes, _: Headers) -> T:
        document = json_object(body)
        if callable(answer):
            return read_as(kind, answer(document))
        return read_as(kind, document.get(answer) if answer else document)

    return read


def posted(*steps: str, body: Json, read: Reader[T], headers: Headers | None = None) -> Call[T]:
    """Return the Call that posts a body, by default with an idempotency key."""
    return Call(
        operation="/".join(steps), method="POST", path=(*BASE, *steps), body=body, read=read,
        headers=service.key_header(None) if headers is None else headers,
    )  # fmt: skip


def _is_name(text: str) -> bool:
    """Whether a ref or an entry can have this name, and a URL can carry it unchanged."""
    return 0 < len(text) <= MAX_NAME and "\0" not in text and not SURROGATE.search(text)
