"""What is answered of passes over memory refs and of forgetting, and how it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import AwareDatetime, ConfigDict, Field

from ..contract.call import listed
from ..contract.errors import Invalid
from ..contract.reading import Headers, Reader, T, json_object, read_as
from .models import CAMEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did: the archive `output_id` says what its sources said.

    `run_id` is the pass, which tells of it, and which `undo` takes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    run_id: str
    memory_ref: str
    output_id: str
    source_ids: tuple[str, ...] | None = None  # None if there are more than are named
    source_count: int
    trigger: str
    byte_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation(Compaction):
    """What a distillation did, whose sources stay; not `created`: the archive was there."""

    token_budget: int
    tokens_used: int
    archive_checksum: str  # SHA-256 of the archive's text
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A text that is to take the place of entries: 2 to 100, by their ids."""

    ids: Sequence[str]
    content: str
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """What a consolidation did: how many entries a list showed before it, and shows now."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    run_id: str
    memory_ref: str
    input_count: int
    output_count: int
    merged_ids: tuple[str, ...] | None = None  # None if there are more than are named
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What the undoing of a pass did: entries that are back, and such as are gone."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    run_id: str
    restored: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedArchive:
    """An archive, without its text, and the time of what it was made of."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    memory_ref: str
    memory_id: str
    archive_checksum: str
    entry_count: int
    since: Annotated[AwareDatetime, Field(alias="from")]
    until: Annotated[AwareDatetime, Field(alias="to")]
    created_at: AwareDatetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryIndex:
    """The live archives of a ref, newest first; `document` is what `MEMORY-INDEX.json` holds."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    version: int
    archive_checksum: str | None = None
    entry_count: int
    updated_at: AwareDatetime | None = None
    archives: tuple[IndexedArchive, ...]
    document: Mapping[str, Any] = field(repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was erased of a subject, or would be, and how many entries of others are back."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    subject: str = field(repr=False)  # whoever was forgotten stands in no log
    entries: int
    archives: int
    restored: int
    commitments: int
    erasure_id: str | None = None  # None if nothing was erased
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The receipt of a forgetting: how much, when its bytes were gone, and what it cannot reach."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    erasure_id: str
    entries: int
    erased_at: AwareDatetime
    bytes_gone_at: AwareDatetime | None = None
    not_reached: tuple[str, ...]


def done(kind: type[T]) -> Reader[T]:
    """The reader of what a pass did, which its event tells."""

    def read(body: bytes, _: Headers) -> T:
        given = json_object(body)
        payload = _object(_object(given.get("event")).get("payload"))
        return read_as(kind, given | payload | _object(payload.get("distillation", {})))

    return read


def indexed(body: bytes, _: Headers) -> MemoryIndex:
    document = json_object(body)
    return read_as(MemoryIndex, document | {"document": document})


def merged(merges: Sequence[object]) -> list[dict[str, object]]:
    """The merges as a body names them. Invalid for what is no Merge."""
    return [_told(merge) for merge in merges]


def _told(merge: object) -> dict[str, object]:
    if not isinstance(merge, Merge):
        raise Invalid('Each merge is a Merge, as Merge(ids=["a", "b"], content="Both.").')
    return {"ids": listed(merge.ids), "content": merge.content, "tags": listed(merge.tags)}


def _object(given: object) -> dict[str, Any]:
    return read_as(dict[str, Any], given)
