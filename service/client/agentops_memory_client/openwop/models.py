"""What is answered of memory refs and runs, as frozen nouns. Names and meanings are OpenWOP's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import AwareDatetime, ConfigDict
from pydantic.alias_generators import to_camel

CAMEL = ConfigDict(alias_generator=to_camel)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry:
    """An entry of a memory ref, which never changes; the id is unique within the ref."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    id: str
    content: str
    tags: tuple[str, ...]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedEntry:
    """An entry that a search has found; the lower its rank, the better."""

    entry: MemoryEntry
    rank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy:
    """Who wrote an entry, as far as that was said."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    run_id: str | None = None
    node_id: str | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where an entry comes from: who wrote it, of what it was made, and what replaces it."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    memory_ref: str
    memory_id: str
    written_by: WrittenBy
    method: str  # put, or how it was derived
    derived_from: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    seen: int
    last_seen_at: AwareDatetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefExtent:
    """How much a memory ref holds."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    memory_ref: str
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefPage:
    """Memory refs in code point order; `next` is what `after` takes, if there are more."""

    refs: tuple[RefExtent, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What happened in a run, without the content of memory; sequences have no gaps."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    event_id: str
    run_id: str
    type: str
    payload: Mapping[str, Any] = field(hash=False)
    timestamp: AwareDatetime
    sequence: int
    node_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events of all runs in order of commit; `next` is what `after` takes, also at the end."""

    events: tuple[RunEvent, ...]
    next: str
