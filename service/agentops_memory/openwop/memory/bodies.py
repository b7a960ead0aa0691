"""What bodies of OpenWOP may hold."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from ...http.bodies import GIVEN, Bodies, Instant
from ...http.faults import bad_fields, fault, fault_of
from ...http.paging import instant
from ...memory.model.memory import MAX_SUPERSEDED, MAX_TTL
from ...memory.redactor import LONGEST_ID as LONGEST_SECRET_ID
from ...recall.text.normalization import clean
from ...recall.text.visible import has_controls
from ..rules.rules import (
    AGENT_LENGTHS,
    LONGEST_ID,
    LONGEST_NODE,
    LONGEST_REF,
    LONGEST_RUN,
    MAX_TAGS,
    is_malformed,
    is_reserved,
    reserved,
)
from ..rules.screen import LONGEST_TAG, MAX_CONTENT

MAX_REFS = 32  # that a run declares
LONGEST_BODY = 1024 * 1024  # bytes

BODIES = Bodies(refusal=bad_fields, limit=LONGEST_BODY)


def _exact(text: str) -> str:
    if clean(text) != text:
        raise fault("must have no NUL and no lone surrogate")
    return text


def _printable(text: str) -> str:
    if has_controls(text):
        raise fault("must have no control characters")
    return text


def _ref(text: str) -> str:
    if is_malformed(text):
        raise fault("is no memory ref")
    return text


def _own(name: str) -> str:
    if is_reserved(name):
        raise fault("has a form that only the service gives")
    return name


def _said(text: str) -> str:
    if not text.strip():
        raise fault("must not be blank")
    if len(text.encode()) > MAX_CONTENT:
        raise fault(f"has at most {MAX_CONTENT:,} bytes of UTF-8")
    return text


def _tags(tags: list[str]) -> list[str]:
    kept = list(dict.fromkeys(filter(None, tags)))
    if len(kept) > MAX_TAGS:
        raise fault(f"has at most {MAX_TAGS} items")
    if next(reserved(tuple(kept)), None) is not None:
        raise fault("has a tag that only the service gives")
    return kept


def _run(name: str) -> str:
    if "/" in name:
        raise fault("must have no slash")
    return name


def instant_text(text: str) -> str:
    if instant(text, needs_offset=True) is None:
        raise fault("must be an RFC 3339 time with an offset")
    return text


Exact = AfterValidator(_exact)
Zoned = Annotated[Instant, AfterValidator(instant_text)]
Printable = AfterValidator(_printable)
MemoryRefText = Annotated[
    str,
    Exact,
    AfterValidator(_ref),
    Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST_REF}, examples=["mem://notes"]),
]
RunName = Annotated[
    str, Field(min_length=1, max_length=LONGEST_RUN), Exact, Printable, AfterValidator(_run)
]
EntryName = Annotated[str, Field(min_length=1, max_length=LONGEST_ID), Exact, Printable]
OwnName = Annotated[EntryName, AfterValidator(_own)]
Node = Annotated[str, Field(min_length=1, max_length=LONGEST_NODE), Exact, Printable]
AgentName = Annotated[
    str, Field(min_length=AGENT_LENGTHS[0], max_length=AGENT_LENGTHS[-1]), Exact, Printable
]
Workflow = Annotated[str, Field(min_length=1, max_length=LONGEST_ID), Exact, Printable]
Tags = Annotated[list[Annotated[str, Field(max_length=LONGEST_TAG), Exact]], AfterValidator(_tags)]

ContentText = Annotated[str, Exact, AfterValidator(_said)]

CAMEL = ConfigDict(**GIVEN, alias_generator=to_camel)


class RefEntryBody(BaseModel):
    """An entry to be put, in a run if it names one."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    content: ContentText
    tags: Tags = []
    expires_at: Zoned | None = None
    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_TTL)] | None = None
    supersedes: Annotated[list[EntryName], Field(max_length=MAX_SUPERSEDED)] = []
    id: OwnName | None = None
    run_id: RunName | None = None
    node_id: Node | None = None
    agent_id: AgentName | None = None

    @model_validator(mode="after")
    def _together(self) -> "RefEntryBody":
        if self.expires_at is not None and self.ttl_seconds is not None:
            raise fault_of("ttlSeconds", "and expiresAt exclude each other")
        for name, given in {"nodeId": self.node_id, "agentId": self.agent_id}.items():
            if given is not None and self.run_id is None:
                raise fault_of(name, "needs a runId")
        return self


class RunBody(BaseModel):
    """A run to be opened."""

    model_config = CAMEL
    run_id: RunName | None = None
    agent_id: AgentName | None = None
    workflow_id: Workflow | None = None
    memory_refs: Annotated[list[MemoryRefText], Field(max_length=MAX_REFS)] = []


class RunSecretBody(BaseModel):
    """A value that is a secret of a run."""

    model_config = CAMEL
    secret_id: Annotated[str, Field(min_length=1, max_length=LONGEST_SECRET_ID), Exact]
    value: Annotated[str, Field(repr=False), Exact]


class RunEndBody(BaseModel):
    """How a run has ended."""

    model_config = CAMEL
    status: Literal["completed", "failed", "cancelled"]


class RunForkBody(BaseModel):
    """How a run is made again, and from which of its events on."""

    model_config = CAMEL
    mode: Literal["replay", "branch"]
    from_seq: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _together(self) -> "RunForkBody":
        if self.mode == "branch" and self.from_seq is None:
            raise fault_of("fromSeq", "is required")
        return self
