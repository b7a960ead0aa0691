"""What bodies of OpenIntent may hold."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from ..errors import Invalid
from ..http.bodies import GIVEN, Instant, present
from ..http.faults import fault, fault_of
from ..http.paging import instant
from ..memory.model.agents import LONGEST_AGENT, agent_id
from ..memory.redactor import MAX_TAG, MAX_TAGS
from ..recall.text.visible import has_controls
from .rules.binding import LONGEST, PREFIX, TASK_LIFETIME, lifetime
from .rules.values import MAX_NAME, MAX_VALUE, compact

MAX_BATCH = 100  # entries
MAX_ALLOWED = 1_000  # agents of a namespace's permissions


def _printable(text: str) -> str:
    if has_controls(text):
        raise fault("must have no control characters")
    return text


def _without(sign: str, name: str) -> AfterValidator:
    def checked(text: str) -> str:
        if sign in text:
            raise fault(f"must have no {name}")
        return text

    return AfterValidator(checked)


def _agent(text: str) -> str:
    try:
        return agent_id(text)
    except Invalid as error:
        raise fault(f"is none: {error}".removesuffix(".")) from error


def _ttl(text: str) -> str:
    if text != TASK_LIFETIME:
        try:
            lifetime(text)
        except Invalid as error:
            raise fault(str(error).removeprefix("ttl ").removesuffix(".")) from error
    return text


def _compact(value: Any) -> str:
    if not isinstance(value, dict):
        raise fault("must be an object")
    return _compact_of(value)


def _compact_any(value: Any) -> str:
    return _compact_of(value if isinstance(value, dict) else {"value": value})


def _compact_of(value: dict[str, Any]) -> str:
    try:
        return compact(value)
    except Invalid as error:
        raise fault(str(error).removeprefix("value ").removesuffix(".")) from error


def _instant(text: str) -> str:
    if instant(text) is None:
        raise fault("must be an RFC 3339 time")
    return text


Printable = AfterValidator(_printable)
NamespaceName = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME), Printable, _without("*", "asterisk")
]
Key = Annotated[str, Field(min_length=1, max_length=MAX_NAME), Printable]
Tag = Annotated[str, Field(min_length=1, max_length=MAX_TAG), Printable, _without(",", "comma")]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
Label = Annotated[str, Field(min_length=1, max_length=LONGEST_AGENT), Printable]
Agent = Annotated[
    str,
    AfterValidator(_agent),
    Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST_AGENT}),
]
Curator = Annotated[str, Field(max_length=MAX_NAME), Printable]
Ttl = Annotated[
    str,
    AfterValidator(_ttl),
    Field(json_schema_extra={"pattern": f"^({TASK_LIFETIME}$|{PREFIX}P)"}),
]
Expiry = Annotated[Instant, AfterValidator(_instant)]
TierName = Literal["working", "episodic", "semantic"]
PriorityName = Literal["low", "normal", "high"]
SensitivityName = Literal["public", "internal", "confidential", "restricted"]
AccessName = Literal["none", "read", "write", "admin"]
Value = Annotated[  # read as the compact text that is stored
    Any,
    AfterValidator(_compact),
    Field(
        json_schema_extra={
            "type": "object",
            "description": f"At most {MAX_VALUE:,} bytes of compact JSON.",
            "examples": [{"total": 47}],
        }
    ),
]


EXAMPLE = {
    "agent_id": "example-agent", "namespace": "example", "key": "another", "value": {},
    "memory_type": "episodic",
}  # fmt: skip


class ScopeBody(BaseModel):
    """What an entry is bound to, or labelled with."""

    model_config = GIVEN
    task_id: Label | None = None
    intent_id: Label | None = None


class AgentEntryBody(BaseModel):
    """POST /api/v1/memory."""

    model_config = GIVEN
    agent_id: Agent | None = None
    namespace: NamespaceName
    key: Key
    value: Value
    memory_type: TierName
    scope: ScopeBody = ScopeBody()
    tags: Tags = []
    ttl: Ttl | None = None
    pinned: bool = False
    priority: PriorityName = "normal"
    sensitivity: SensitivityName | None = None
    expires_at: Expiry | None = None
    curated_by: Curator | None = None

    @model_validator(mode="after")
    def _belongs(self) -> "AgentEntryBody":
        if self.agent_id is None and self.memory_type != "semantic":
            raise fault_of("agent_id", "is required")
        is_made = getattr(self, "version", None) is None
        if is_made and self.ttl == TASK_LIFETIME and self.scope.task_id is None:
            raise fault_of("ttl", f"{TASK_LIFETIME} needs scope.task_id")
        return self


class AgentBatchItem(AgentEntryBody):
    """An entry of a batch: with a version it is changed, without one it is made."""

    version: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _present(cls, given: Any) -> Any:
        return present(given) if isinstance(given, dict) else given


class AgentBatchBody(BaseModel):
    """POST /api/v1/memory/batch."""

    model_config = GIVEN
    entries: Annotated[
        list[AgentBatchItem], Field(min_length=1, max_length=MAX_BATCH, examples=[[EXAMPLE]])
    ]


class AgentChangeBody(BaseModel):
    """PATCH /api/v1/memory/{id}: what is left out stays as it is.

    `null` takes away ttl, expires_at, sensitivity and curated_by. The rest of an entry may be
    sent back as it is.
    """

    model_config = GIVEN | {"extra": "allow"}
    value: Value | None = None
    tags: Tags | None = None
    pinned: bool | None = None
    priority: PriorityName | None = None
    sensitivity: SensitivityName | None = None
    ttl: Ttl | None = None
    expires_at: Expiry | None = None
    curated_by: Curator | None = None


class AgentPutBody(BaseModel):
    """PUT /api/v1/agents/{agent}/memory/{namespace}/{key}: a value of any type, and its time."""

    model_config = GIVEN
    value: Annotated[
        Any,
        AfterValidator(_compact_any),
        Field(json_schema_extra={"description": "What is no object is stored as one's `value`."}),
    ]
    ttl_seconds: Annotated[int, Field(ge=1, le=int(LONGEST.total_seconds()))] | None = None


class AllowedAgent(BaseModel):
    """What one agent may do in a namespace."""

    model_config = GIVEN
    agent: Agent
    access: AccessName


class PermissionsBody(BaseModel):
    """Who may do what; `allow` replaces the whole list."""

    model_config = GIVEN
    default: AccessName | None = None
    allow: Annotated[list[AllowedAgent], Field(max_length=MAX_ALLOWED)] | None = None

    @model_validator(mode="after")
    def _named_once(self) -> "PermissionsBody":
        named = [each.agent for each in self.allow or ()]
        if len(set(named)) < len(named):
            raise fault_of("allow", "names an agent twice")
        return self


class NamespaceChangeBody(BaseModel):
    """PATCH /api/v1/memory/namespaces/{namespace}."""

    model_config = GIVEN
    permissions: PermissionsBody
