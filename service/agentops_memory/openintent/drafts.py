"""Bodies of requests that create or change entries; `changes` takes them as they are (§1)."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, model_validator

from ..errors import BadFields, Denied, Invalid
from ..http.bodies import BODY_CONFIG, fault_of, present
from ..http.query import ENTRY, public_id
from ..memory.access import LONGEST_AGENT, NOT_YOUR_AGENT, AgentId
from ..memory.redactor import MAX_KEY, Redactor, is_plain
from ..memory.sight import Priority, Sensitivity, Tier, Viewer
from . import api
from .api import MAX_NAME, Agent, Curator, Expiry, Key, Label, Tags, screened, value_of
from .entries import TASK_LIFETIME, AgentEntry, EntryKey, clean_tags, names_of

B = TypeVar("B", bound="EntryFields")

MAX_BATCH = 100  # entries of a batch
DURATION = "duration:"
MAX_TTL = timedelta(days=36_500)
YEAR, MONTH = 365, 30  # days
_DAY = 86_400  # seconds

_PARTS = re.compile(
    r"P(?:(?P<years>\d{1,9})Y)?(?:(?P<months>\d{1,9})M)?(?:(?P<weeks>\d{1,9})W)?"
    r"(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,6})?)S)?)?",
    re.ASCII,
)


def lifetime(ttl: str) -> timedelta:
    """Return the length of a ttl that is a duration; raise Invalid if it is malformed.

    A year has 365 days, a month 30. The length must be above 0, and at most 36,500 days.
    """
    match = _PARTS.fullmatch(ttl.removeprefix(DURATION)) if ttl.startswith(DURATION) else None
    parts = {name: text for name, text in match.groupdict().items() if text} if match else {}
    if not parts:
        raise Invalid(f"ttl must be {TASK_LIFETIME}, or {DURATION} and a duration such as P30D.")
    number = {name: float(text.replace(",", ".")) for name, text in parts.items()}
    days = number.pop("years", 0) * YEAR + number.pop("months", 0) * MONTH
    try:
        lasts = timedelta(days=days) + timedelta(**number)
    except OverflowError:
        lasts = timedelta.max
    if not timedelta() < lasts <= MAX_TTL:
        raise Invalid("ttl must be longer than 0, and at most 100 years.")
    return lasts


def expiry_of(ttl: str | None, expires_at: datetime | None, now: datetime) -> datetime | None:
    """Return the expiry that was set, else the ttl's; raise BadFields if it has passed."""
    api.require_future(expires_at, now)
    if expires_at is not None or ttl is None or ttl == TASK_LIFETIME:
        return expires_at
    return now + lifetime(ttl)


def _ttl(text: str) -> str:
    if text != TASK_LIFETIME:
        api.faulty(lifetime, "ttl")(text)
    return text


Ttl = Annotated[
    str, AfterValidator(_ttl),
    Field(json_schema_extra={"pattern": f"^({TASK_LIFETIME}$|{DURATION}P)"}),
]  # fmt: skip
Value = Annotated[  # parsed to the compact JSON that is stored
    Any, AfterValidator(value_of),
    Field(json_schema_extra={
        "type": "object", "description": "At most 65,536 bytes of compact JSON.",
        "examples": [{"total": 47}],
    }),
]  # fmt: skip
TierName = Literal["working", "episodic", "semantic"]
PriorityName = Literal["low", "normal", "high"]
SensitivityName = Literal["public", "internal", "confidential", "restricted"]
# Fields of bodies besides key, value and expiry; each with its conversion to the entry's field.
CONVERSIONS: Mapping[str, Callable[[Any], object]] = {
    "tags": lambda tags: tuple(dict.fromkeys(tags)), "pinned": bool,
    "priority": lambda name: Priority[name.upper()], "sensitivity": Sensitivity,
    "curated_by": str, "ttl": str,
}  # fmt: skip
NULLABLE = {"sensitivity", "curated_by", "ttl"}  # fields that `null` removes
EXAMPLE = {
    "agent_id": "example-agent", "namespace": "example", "key": "another", "value": {},
    "memory_type": "episodic",
}  # fmt: skip


class EntryFields(BaseModel):
    """The base of bodies with fields of an entry."""

    model_config = BODY_CONFIG

    def values_of(self, names: Iterable[str]) -> dict[str, Any]:
        """Return these fields, converted to the types of an entry's fields."""
        values = {name: getattr(self, name) for name in names}
        return {name: it if it is None else CONVERSIONS[name](it) for name, it in values.items()}


class ScopeBody(BaseModel):
    """The task and the intent that an entry is bound to, or labeled with."""

    model_config = BODY_CONFIG
    task_id: Label | None = None
    intent_id: Label | None = None

    def __deepcopy__(self, _: object = None) -> "ScopeBody":
        return self  # the shared default, which is never changed

    def clean(self, redactor: Redactor) -> "ScopeBody":
        """Return the scope without secrets."""
        named = {name: it for name, it in self if it is not None}
        texts = {name: redactor.text(it, LONGEST_AGENT) for name, it in named.items()}
        return self.model_copy(update=texts) if texts else self


class AgentEntryBody(EntryFields):
    """POST /api/v1/memory."""

    agent_id: Agent | None = None
    namespace: api.NamespaceName
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

    def entry_key(self, viewer: Viewer) -> EntryKey:
        """Return the key of the entry; raise Denied for another agent's memory."""
        if self.agent_id is not None and self.agent_id != viewer.agent:
            raise Denied(NOT_YOUR_AGENT)
        tier = Tier(self.memory_type)
        owner = None if tier is Tier.SEMANTIC else viewer.agent
        return EntryKey(tier, owner, self.namespace, self.key)


class AgentChangeBody(EntryFields):
    """PATCH /api/v1/memory/{id}: absent fields stay as they are.

    `null` removes ttl, expires_at, sensitivity and curated_by. Other members of an entry are
    accepted if they are unchanged.
    """

    model_config = BODY_CONFIG | {"extra": "allow"}
    value: Value | None = None
    tags: Tags | None = None
    pinned: bool | None = None
    priority: PriorityName | None = None
    sensitivity: SensitivityName | None = None
    ttl: Ttl | None = None
    expires_at: Expiry | None = None
    curated_by: Curator | None = None

    def require_version(self, version: int) -> None:
        claimed = version if self.model_extra is None else self.model_extra.get("version")
        if claimed is not None and (type(claimed) is not int or claimed != version):
            raise BadFields([("version", "must equal the header If-Match")])

    def require_same(self, entry: AgentEntry) -> None:
        """Raise BadFields for unchangeable members that differ from the entry's."""
        claims = present(self.model_extra or {})
        if not claims:
            return
        same = {
            "id": public_id(ENTRY, entry.id), "agent_id": entry.agent_id, "key": entry.key,
            "namespace": entry.namespace, "memory_type": entry.memory_type.value,
            "scope": names_of(entry.scope),
            "created_by": entry.created_by, "created_at": api.rendered(entry.created_at),
        }  # fmt: skip
        wrong = [name for name, it in same.items() if name in claims and claims[name] != it]
        if wrong:
            raise BadFields([(name, "cannot be changed") for name in wrong])

    def amended(self, before: AgentEntry, now: datetime) -> dict[str, Any]:
        """Return the fields of the entry that the change sets.

        A ttl counts from the change that sets it. An expiry that stays the same is no change; a
        new one that has passed raises BadFields.
        """
        named = self.model_fields_set
        after = self.values_of(named & CONVERSIONS.keys())
        after = {name: it for name, it in after.items() if it is not None or name in NULLABLE}
        if self.value is not None:
            after["value"] = self.value
        ttl = after.get("ttl", before.ttl)
        if "expires_at" in named:
            end = api.instant_if_any(self.expires_at)
            if end != before.expires_at or ttl != before.ttl:
                after |= {"expires_at": expiry_of(ttl, end, now), "is_own_expiry": end is not None}
        elif "ttl" in named and not before.is_own_expiry:
            after["expires_at"] = expiry_of(ttl, None, now)
        return after


class AgentBatchItem(api.Nested, AgentEntryBody):
    """An entry of a batch: with a version it is changed, without one it is created."""

    version: int | None = None

    @property
    def change(self) -> AgentChangeBody:
        """The change of the entry at its key."""
        named = [name for name in AgentChangeBody.model_fields if name in self.model_fields_set]
        values = {name: it for name in named if (it := getattr(self, name)) is not None}
        claims: dict[str, Any] = {}
        if "scope" in self.model_fields_set:
            claims["scope"] = present(self.scope.model_dump())
        return AgentChangeBody.model_construct(set(values), **values, **claims)


class AgentBatchBody(BaseModel):
    """POST /api/v1/memory/batch."""

    model_config = BODY_CONFIG
    entries: Annotated[
        list[AgentBatchItem], Field(min_length=1, max_length=MAX_BATCH, examples=[[EXAMPLE]])
    ]


class AgentPutBody(BaseModel):
    """PUT /api/v1/agents/{agent}/memory/{namespace}/{key}: a value of any type, and its ttl."""

    model_config = BODY_CONFIG
    value: Annotated[
        Any, AfterValidator(lambda it: value_of(it if isinstance(it, dict) else {"value": it})),
        Field(json_schema_extra={
            "description": "A value that is not an object is stored as the `value` of one."
        }),
    ]  # fmt: skip
    ttl_seconds: Annotated[int, Field(ge=1, le=int(MAX_TTL.total_seconds()))] | None = None

    def at(self, agent: AgentId, namespace: str, key: str) -> AgentEntryBody:
        """Return the body that creates the episodic entry."""
        ttl = None
        if self.ttl_seconds is not None:
            days, seconds = divmod(self.ttl_seconds, _DAY)
            ttl = f"{DURATION}P{days}DT{seconds}S" if days else f"{DURATION}PT{seconds}S"
        return AgentEntryBody.model_construct(
            agent_id=agent, namespace=namespace, key=key, value=self.value, ttl=ttl,
            memory_type="episodic",
        )  # fmt: skip


# How secrets are removed from each part of a body, in this order.
CLEANERS: Mapping[str, Callable[[Redactor, Any], object]] = {
    "namespace": lambda redactor, it: redactor.text(it, MAX_NAME),
    "key": lambda redactor, it: redactor.text(it, MAX_KEY),
    "value": screened,
    "tags": lambda redactor, it: clean_tags(redactor, dict.fromkeys(it)),
    "scope": lambda redactor, it: it.clean(redactor),
    "curated_by": lambda redactor, it: redactor.text(it, MAX_NAME),
}  # fmt: skip


NAMES = ("namespace", "key", "curated_by")


def cleaned(redactor: Redactor, body: B) -> B:
    """Return a body without secrets; absent fields stay absent."""
    own = body.model_fields_set & type(body).model_fields.keys()  # extra members are not stored
    values = {name: getattr(body, name) for name in CLEANERS if name in own}
    if isinstance(value := values.get("value"), api.Json):
        scope = [] if (it := values.get("scope")) is None else [it.task_id, it.intent_id]
        names = [*map(values.get, NAMES), *(values.get("tags") or ()), *scope]
        if is_plain(value, value.parsed, lambda its: redactor.are_clean([*names, *its])):
            return body
    changes = {name: CLEANERS[name](redactor, it) for name, it in values.items() if it is not None}
    return body.model_copy(update=changes)
