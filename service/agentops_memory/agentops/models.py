"""The request bodies of AgentOps REST, a validation that names every fault, and its JSON."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError, to_json

from agentops_memory_client.contract import models as c

from ..errors import InvalidFields
from ..light import fields, is_dataclass
from ..memory import memory as records, redactor as limits
from ..memory.rows import parsed, whole_seconds
from ..memory.saves import Lookalike, Saved
from ..memory.space import PROJECT_SCOPE, Project, Space, project_name
from ..recall.summary import Message
from ..recall.text import clean
from .wire import IN_HEADERS, WITH_EMPTY_LISTS, Rows, SummaryLine

Model = TypeVar("Model", bound="_Body")


def _folded(name: Any) -> Any:
    return project_name(name) if isinstance(name, str) else name


def _instant(value: Any) -> datetime:
    at = parsed(value, needs_zone=True) if isinstance(value, str) else None
    if at is None:
        raise PydanticCustomError("instant", "no instant")
    return at


def _reference(value: Any) -> int | str:
    if isinstance(value, str) and 0 < len(value) <= MAX_UID:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_ID:
        raise PydanticCustomError("reference", "no id")
    return value


MAX_ID = 1 << 53  # a JSON number beyond is not exact everywhere (RFC 8259 §6)
MAX_UID = 64  # characters; a stable id has 36
_VISIBLE = r"[^\s\x1c-\x1f]"  # not blank: a character that Python does not strip

_NEW = "A new one must not contain invisible characters{}, unless it is imported."

SessionKey = Annotated[
    str, Field(min_length=1, max_length=limits.MAX_SESSION_ID, description=_NEW.format(""))
]
Type = Annotated[str, Field(pattern=_VISIBLE, max_length=limits.MAX_TYPE)]
Title = Annotated[str, Field(pattern=_VISIBLE, max_length=limits.MAX_TITLE)]
Content = Annotated[str, Field(pattern=_VISIBLE, max_length=limits.MAX_CONTENT)]
ProjectName = Annotated[
    Project,
    Field(pattern=_VISIBLE, max_length=limits.MAX_PROJECT, description=_NEW.format(" and no `*`")),
    BeforeValidator(_folded),
]  # the limit applies to the normalized name, which is the one that an export has
Scope = Annotated[str, Field(max_length=limits.MAX_SCOPE)]
Summary = Annotated[str, Field(max_length=limits.MAX_SUMMARY)]
Promotion = Annotated[str, Field(max_length=limits.MAX_TITLE)]
TopicKey = Annotated[str, Field(max_length=limits.MAX_KEY, description=_NEW.format(""))]
Tag = Annotated[str, Field(max_length=limits.MAX_TAG, description=_NEW.format(""))]
Tags = Annotated[list[Tag], Field(max_length=limits.MAX_TAGS)]
Count = Annotated[int, Field(ge=0, le=(1 << 53))]
Positive = Annotated[int, Field(ge=1, le=(1 << 53))]
FutureInstant = Annotated[
    datetime, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
Ttl = Annotated[int, Field(ge=1, le=records.MAX_TTL, description="Seconds from now.")]
ObservationRef = Annotated[
    int | str, BeforeValidator(_reference),
    WithJsonSchema({"anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MAX_ID},
        {"type": "string", "minLength": 1, "maxLength": MAX_UID},
    ]}),
]  # fmt: skip
Superseded = Annotated[
    list[ObservationRef],
    Field(
        max_length=records.MAX_SUPERSEDED, description="Ids, or stable ids, of the same project."
    ),
]
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


_LIFECYCLE = {it.name for it in fields(records.LifecycleChange)}


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)
    NULLABLE: ClassVar[frozenset[str]] = frozenset()


class SessionBody(_Body):
    """POST /sessions."""

    id: SessionKey
    project: ProjectName


class NamedSession(_Body):
    """The session in a path, and its project if the session is new."""

    id: SessionKey
    project: ProjectName | None = None


class MessageBody(_Body):
    """One message of a transcript."""

    role: str | None = None
    content: str | None = None


class Messages(_Body):
    """The messages of a body, each of which is validated separately."""

    messages: list[Any]


class AppendBody(_Body):
    """POST /sessions/{id}/messages. `Messages` reads it; this model only describes it."""

    messages: list[MessageBody]


class EndBody(_Body):
    """POST /sessions/{id}/end. It is streamed; this model only describes it."""

    messages: list[MessageBody] | None = None


class LifecycleBody(_Body):
    """How long an observation is valid; an absent field changes nothing."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["expires_at", "ttl"]}})
    expires_at: FutureInstant | None = None
    ttl: Ttl | None = None
    pinned: bool | None = None
    supersedes: Superseded | None = None
    review_at: FutureInstant | None = None

    @model_validator(mode="after")
    def _has_one_expiry(self) -> Self:
        if {"expires_at", "ttl"} <= self.model_fields_set:
            raise PydanticCustomError("two_expiries", "two expiries")
        return self

    @property
    def lifecycle(self) -> records.LifecycleChange:
        """The fields that the body sets; in a change `null` removes an instant."""
        named: dict[str, Any] = {it: getattr(self, it) for it in _LIFECYCLE & self.model_fields_set}
        if "ttl" in named:
            named["ttl"] = timedelta(seconds=named["ttl"])
        if "supersedes" in named:
            named["supersedes"] = tuple(named["supersedes"])
        return records.LifecycleChange(**named)


class MemoryBody(_Body):
    """The text of an observation, and where it is stored."""

    session_id: SessionKey
    type: Type
    title: Title
    content: Content
    project: ProjectName
    tags: Tags | None = None
    scope: Scope | None = None
    key: Annotated[TopicKey | None, Field(validation_alias=records.TOPIC_KEY)] = None

    @property
    def memory(self) -> dict[str, Any]:
        """The fields that a draft and a memory have in common."""
        text = records.Text(
            type=self.type, title=self.title, content=self.content, tags=tuple(self.tags or ())
        )
        space = Space(project=self.project, scope=self.scope or PROJECT_SCOPE)
        session = records.SessionId(self.session_id)
        return {"session": session, "space": space, "text": text, "key": self.key or None}


class ObservationBody(MemoryBody, LifecycleBody):
    """POST /observations."""

    @property
    def draft(self) -> records.Draft:
        return records.Draft(**self.memory, lifecycle=self.lifecycle)


class ChangeBody(LifecycleBody):
    """PATCH /observations/{id}; `null` removes the expiry or the review."""

    NULLABLE = frozenset({"expires_at", "review_at"})
    type: Type | None = None
    title: Title | None = None
    content: Content | None = None
    tags: Tags | None = None
    revision: Positive | None = Field(
        default=None, description="The revision that it changes; 409 if there is a newer one."
    )

    @property
    def change(self) -> records.Change:
        return records.Change(
            type=self.type, title=self.title, content=self.content,
            tags=None if self.tags is None else tuple(self.tags), lifecycle=self.lifecycle,
        )  # fmt: skip


class RestoreBody(_Body):
    """POST /observations/{id}/restore."""

    revision: Positive


class ImportedSession(_Body):
    """A session in an import."""

    id: SessionKey
    project: ProjectName
    started_at: Instant | None = None
    ended_at: Instant | None = None
    summary: Summary | None = None
    message_count: Count | None = None


class ImportedObservation(MemoryBody):
    """An observation in an import."""

    uid: str | None = None
    revision_count: Count | None = None
    duplicate_count: Count | None = None
    last_seen_at: Instant | None = None
    promoted_to: Promotion | None = None
    created_at: Instant | None = None
    updated_at: Instant | None = None
    expires_at: Instant | None = None
    pinned: bool | None = None
    supersedes: list[str] | None = None
    review_at: Instant | None = None
    confirmed_at: Instant | None = None
    pinned_at: Instant | None = None


class ImportBody(_Body):
    """POST /import. It is streamed; this model only describes it."""

    sessions: list[ImportedSession] | None = None
    observations: list[ImportedObservation] | None = None


def body(model: type[Model], value: object, path: str = "") -> Model:
    """Return the validated body; InvalidFields names every fault. `null` counts as absent."""
    if not isinstance(value, Mapping):
        raise InvalidFields(f"validation failed: {path or 'the body'} must be an object")
    nullable = model.NULLABLE
    # Most values are ASCII, and an import has millions: `clean` is not called for them.
    members = {
        k: v if v.__class__ is str and v.isascii() and "\0" not in v else _value(v)
        for k, v in value.items()
        if v is not None or k in nullable
    }
    try:
        return model.model_validate(members)
    except pydantic.ValidationError as error:
        faults = [_fault(fault, path) for fault in error.errors(include_url=False)]
        raise InvalidFields(f"validation failed: {'; '.join(faults)}") from None


def messages(value: Mapping[str, object]) -> Iterator[Message]:
    """Yield the messages of a body, whose list must exist but may be empty."""
    body(Messages, value)
    every = value["messages"]
    assert isinstance(every, list)  # the model has required it
    for position, it in enumerate(every):
        yield message(it, position)


def message(item: object, position: int) -> Message:
    it = body(MessageBody, {} if item is None else item, f"messages[{position}]")
    return Message(role=it.role or "", content=it.content or "")


def _value(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_value(item) for item in value if item is not None]
    return value


_FAULTS = {
    "missing": "{name} is required",
    "string_too_short": "{name} is required",
    "string_pattern_mismatch": "{name} is required",
    "string_too_long": "{name} exceeds {max_length} chars",
    "string_type": "{name} must be a string",
    "too_long": "{name} exceed {max_length} items",
    "list_type": "{name} must be a list",
    "bool_type": "{name} must be true or false",
    "instant": "{name} must be an instant with a time zone, such as 2027-01-31T09:00:00Z",
    "reference": "{name} must be the id of an observation",
    "two_expiries": "expires_at and ttl must not be used together",
    "int_type": "{name} must be a whole number",
    "greater_than_equal": "{name} must be {ge} or more",
    "less_than_equal": "{name} must be {le} or less",
}


def _fault(fault: Mapping[str, object], path: str) -> str:
    location = fault["loc"]
    assert isinstance(location, tuple)
    name = path
    for step in location:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else str(step)
    context = fault.get("ctx")
    details = context if isinstance(context, dict) else {}
    phrase = _FAULTS.get(str(fault["type"]), "{name} is not valid: {msg}")
    return phrase.format(name=name, msg=fault["msg"], **details)


def saved(outcome: Saved, similar: Sequence[Lookalike] | None, redacted: int) -> c.Saved:
    return c.Saved(
        id=outcome.memory.id, action=outcome.action.value, revision_count=outcome.memory.revision,
        duplicate_count=outcome.memory.duplicates, expires_at=outcome.memory.lifecycle.expires_at,
        similar=None if similar is None else tuple(map(_similar, similar)), redacted=redacted,
        warning=outcome.warning,
    )  # fmt: skip


def _similar(of: Lookalike) -> c.Similar:
    return c.Similar(
        id=of.memory.id, title=of.memory.text.title, type=of.memory.text.type,
        score=round(of.score, 2), updated_at=whole_seconds(of.memory.updated_at),
    )  # fmt: skip


def json_bytes(noun: object) -> bytes:
    """Return a noun, or a list of one type, as JSON; fields without a value are omitted."""
    kind: Any = type(noun)
    if hasattr(kind, "model_dump_json"):
        return cast(bytes, kind.model_dump_json(noun, exclude_none=True).encode())
    match noun:
        case c.Found():
            hits, why = json_bytes(noun.hits), noun.explanation
            return hits if why is None else b'{"results":%b,"explain":%b}' % (hits, json_bytes(why))
        case c.Context():
            summaries = json_bytes(list(map(SummaryLine, noun.summaries)))
            lines, why = json_bytes(noun.observations), noun.explanation
            explain = b"" if why is None else b',"explain":%b' % json_bytes(why)
            context = b'{"recent_sessions":%b,"recent_observations":%b%b}'
            return context % (summaries, lines, explain)
        case Rows() if noun.json:
            return b"[%b]" % b",".join(noun.json)
        case [first, *_]:
            kind, noun = list[type(first)], list(noun)  # type: ignore[misc]
        case list() | tuple() | dict():
            return to_json(noun)
    return c.adapter_of(kind).dump_json(
        noun, exclude=IN_HEADERS, exclude_none=True, exclude_defaults=kind not in WITH_EMPTY_LISTS
    )


def build_serializers() -> None:
    """Build the serializers of all answers: the first one imports modules, which opens files."""
    for kind in vars(c).values():
        if isinstance(kind, type) and is_dataclass(kind):
            c.adapter_of(kind)
            c.adapter_of(list[kind])  # type: ignore[valid-type]
    c.adapter_of(list[SummaryLine])
