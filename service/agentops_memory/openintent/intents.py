"""Intents and their participants: coordinators and grantees (RFC-0001, RFC-0015 §9.1).

Creating intents is a right of the key: a coordinator reads the memory of the agents that it gives
tasks to, so no agent may become the coordinator of another's work by itself. Coordinators and
grantees take part next to the creator (RFC-0013, RFC-0011).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, create_model
from starlette.responses import Response

from ..engine.engine import Transaction
from ..errors import Denied, Invalid, NotFound, required
from ..http.bodies import Body, answered, fault, must
from ..http.protocol import Operation
from ..memory import agent_memory, details as stored
from ..memory.access import AgentId, Caller
from ..memory.agent_memory import (
    ACTIVE,
    CoordinatorId,
    GrantId,
    IntentId,
    Permission,
    Standing,
    Viewer,
)
from ..memory.idempotency import once
from ..memory.memory import Lifecycle
from ..memory.redactor import require_room
from ..memory.rows import UNSTORED, Column, RowMapper
from ..memory.saves import Written
from ..memory.table import Sql
from ..recall.text import object_of
from ..record import Record, defaults_of, shape
from ..telemetry import annotate
from . import api
from .api import Agent, FullRecord, JsonObject, Serving, Time, instant_if_any, op

T = TypeVar("T")
B = TypeVar("B", bound=api.Draft)

INTENTS = f"{api.PREFIX}/intents"
INTENT = f"{INTENTS}/{{intent_id}}"
NO_INTENT = api.UNKNOWN["intent_id"]
MAX_TITLE, MAX_DESCRIPTION = 500, 10_000  # characters
MAX_ITEMS = 1_000  # items of a list in a body
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON, where `\\` is one backslash


def without_nul(value: Any) -> Any:
    if _NUL.search(json.dumps(value)):  # the package's clients can read back anything else
        raise fault("must not contain NUL")
    return value


WithoutNul = AfterValidator(without_nul)
Chosen = Annotated[
    str, must(api.CHOSEN.fullmatch, "must be 1 to 128 of A-Z, a-z, 0-9, ., _, : and -"),
    Field(json_schema_extra={"maxLength": 128, "pattern": "^[A-Za-z0-9._:-]+$"}),
]  # fmt: skip
Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE), api.Printable]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION), WithoutNul]
Word = Annotated[str, Field(max_length=MAX_TITLE), api.Printable]
Words = Annotated[list[Word], Field(max_length=MAX_ITEMS)]
Object = Annotated[JsonObject, WithoutNul, Field(examples=[{}])]
Small = Annotated[int, Field(ge=0, le=2**31 - 1)]


# By the type of a detail in a record, the limited type of the same field in a body.
_LIMITED: dict[Any, Any] = {
    of: limited
    for it, limited in {str: Word, int: Small, list[str]: Words, JsonObject: Object}.items()
    for of in (it, it | None)
}


def with_details(details: type[Record], **limited: Any) -> Callable[[type[B]], type[B]]:
    """Add the details of a record to a body, each optional and with the limits of its type."""

    def whole(body: type[B]) -> type[B]:
        fields: dict[str, Any] = {}
        for name, it in details.model_fields.items():
            if name in body.model_fields:
                continue
            hint: Any = limited.get(name) or _LIMITED.get(it.annotation, it.annotation)
            fields[name] = (hint | None if it.default is None else hint, it.default)
        made = create_model(body.__name__, __base__=body, __doc__=body.__doc__, **fields)
        made.members = details.model_fields.keys()
        return made

    return whole


@with_details(stored.IntentDetails, parent_intent_id=api.Label)
class IntentBody(api.Draft):
    """POST /api/v1/intents; the calling agent is the creator, whatever the body says."""

    id: Chosen | None = None
    title: Title
    description: Description = ""


class Intent(stored.IntentDetails, api.Detailed):
    """A goal that agents work on."""

    id: IntentId
    status: Literal["active"] = "active"
    version: Annotated[int, UNSTORED] = 1
    created_by: AgentId
    confidence: Annotated[int, UNSTORED] = 0
    created_at: Time
    updated_at: Annotated[Time, Column("created_at")]

    members: ClassVar = defaults_of(stored.IntentDetails)


_INTENT = RowMapper(Intent, "intents")


def _may_create(tx: Transaction, viewer: Viewer, *_: object) -> None:
    """Raise Denied without the right to create intents."""
    if not (tx.caller.coordinates or viewer.is_admin):
        raise Denied(
            "Your key may not create intents; `keys create --coordinator` creates one that may."
        )


def _create(tx: Transaction, viewer: Viewer, body: IntentBody, details: str) -> Intent:
    """Create an intent of the calling agent; raise AlreadyExists if the id is taken."""
    _may_create(tx, viewer)
    require_room(tx)
    if body.id is not None and tx[Sql].fetch(_INTENT, "id = :id", id=body.id) is not None:
        raise api.AlreadyExists
    made = Intent.whole(
        id=IntentId(body.id or new_id(tx, "intent")), created_by=viewer.agent, details=details,
        created_at=tx.now, updated_at=tx.now,
    )  # fmt: skip
    tx[Sql].insert("intents", **_INTENT.values(made))
    return made


def new_id(tx: Transaction, kind: str) -> str:
    """Return a new id, such as `task_` and the 32 hexadecimal digits of a UUIDv7."""
    return f"{kind}_{tx.new_uid(tx.now).replace('-', '')}"


CREATE = once(
    _create, check=_may_create,
    on_repeat=lambda tx, made, viewer, *_: visible_intent(tx, viewer, made.id),
)  # fmt: skip


def require_sight(tx: Transaction, viewer: Viewer, intent: IntentId, *_: object) -> Standing:
    """Return the agent's roles in an intent; raise NotFound if it may not see the intent."""
    position = standing(tx, viewer, intent)
    if not position.sees:
        raise NotFound(NO_INTENT)
    return position


def visible_intent(tx: Transaction, viewer: Viewer, intent: IntentId) -> Intent:
    """Return the intent; raise NotFound if the agent may not see it."""
    require_sight(tx, viewer, intent)
    return required(tx[Sql].fetch(_INTENT, "id = :id", id=intent), NO_INTENT)


def standing(tx: Transaction, viewer: Viewer, intent: IntentId) -> Standing:
    """Return the agent's roles in an intent: none if the intent is unknown."""
    row = tx[Sql].run(
        f"""SELECT created_by = :agent,
                   EXISTS (SELECT 1
                             FROM coordinators
                            WHERE intent = :id AND agent = :agent AND {ACTIVE}),
                   EXISTS (SELECT 1 FROM tasks WHERE intent = :id AND agent = :agent),
                   EXISTS (SELECT 1
                             FROM grants
                            WHERE intent = :id AND agent = :agent AND {agent_memory.GRANTED})
              FROM intents
             WHERE id = :id""",
        id=intent, agent=viewer.agent,
    ).fetchone()  # fmt: skip
    if row is None:
        return Standing()
    roles = zip(("is_creator", "is_coordinator", "is_assigned", "is_grantee"), row, strict=True)
    return Standing(**{name: bool(it) for name, it in roles}, is_admin=viewer.is_admin)


COORDINATORS = f"{api.PREFIX}/coordinators"
ACL = f"{INTENT}/acl"
MAX_COORDINATORS, MAX_GRANTS = 100, 1_000  # limits of an intent
NO_COORDINATOR, NO_GRANT = api.UNKNOWN["coordinator_id"], api.UNKNOWN["grant_id"]
NOT_YOURS = "Only the creator of the intent, or an administrator, may do that."


class GuardrailsBody(Body, extra="allow"):
    """Limits of an intent's memory (§6.6); other members are stored as they are."""

    on_exceed: Literal["pause", "escalate", "pause_and_escalate", "fail"] | None = None
    max_working_memory_per_task: Small | None = None
    max_episodic_memory_per_agent: Small | None = None
    allowed_semantic_namespaces: Words | None = None
    denied_semantic_namespaces: Words | None = None
    memory_archive_required: bool | None = None


def _readable(guardrails: GuardrailsBody) -> GuardrailsBody:
    without_nul(guardrails.model_extra)
    return guardrails


@with_details(
    stored.CoordinatorDetails, guardrails=Annotated[GuardrailsBody, AfterValidator(_readable)]
)
class CoordinatorBody(api.Draft):
    """POST /api/v1/coordinators."""

    intent_id: Chosen
    agent_id: Agent
    expires_at: api.Expiry | None = None


class _CoordinatorKey(api.Detailed):
    intent_id: Annotated[IntentId, Column("intent")]
    agent_id: Annotated[AgentId, Column("agent")]


class Coordinator(stored.CoordinatorDetails, _CoordinatorKey):
    """An agent's coordination of an intent; missing heartbeats do not end it."""

    id: CoordinatorId
    status: Literal["active", "completed"] = "active"  # set when it is read
    granted_at: Time
    expires_at: Time | None = None
    version: int = 1
    is_ended: bool = Field(default=False, exclude=True)

    members: ClassVar = defaults_of(stored.CoordinatorDetails)

    def at(self, now: datetime) -> "Coordinator":
        ends = Lifecycle(expires_at=self.expires_at)
        is_over = self.is_ended or ends.is_expired(now)
        return self.model_copy(update={"status": "completed" if is_over else "active"})


class GrantBody(api.Draft):
    """POST /api/v1/intents/{id}/acl/entries; every permission grants read access only."""

    members: ClassVar = ("reason",)

    principal_id: Agent
    principal_type: Literal["agent"] = "agent"
    permission: Annotated[Permission, api.ByName] = Permission.READ
    reason: Description | None = None
    expires_at: api.Expiry | None = None


class Grant(FullRecord):
    """An agent's right to read an intent, its tasks, its log and their working memory."""

    id: GrantId
    principal_id: Annotated[AgentId, Column("agent")]
    principal_type: Literal["agent"] = "agent"
    permission: agent_memory.Permission
    granted_by: AgentId
    granted_at: Time
    expires_at: Time | None
    reason: str | None
    intent: IntentId = Field(exclude=True)


AccessList = shape(
    "AccessList", "The grants on an intent.",
    intent_id=str, default_policy=(Literal["closed"], "closed"), entries=Sequence[Grant],
)  # fmt: skip


def operations(serving: Serving) -> tuple[Operation, ...]:
    async def access_list(caller: Caller, viewer: Viewer, intent: IntentId) -> Response:
        grants = await serving.engine.read(caller, visible_grants, viewer, intent)
        annotate({"memory.result_count": len(grants)})
        entries = [each.model_dump() for each in grants]
        return answered({"intent_id": intent, "default_policy": "closed", "entries": entries})

    async def coordinate(caller: Caller, viewer: Viewer, body: CoordinatorBody) -> Written[Any]:
        of = viewer, IntentId(body.intent_id), body
        return await write(_COORDINATE, caller, *of, action="coordinator.made", about=_may_make)

    async def revoke(caller: Caller, *of: Any) -> api.DeletedEntry:
        await serving.write(_REVOKE, caller, *of, action="grant.revoked", about=_revoked)
        return api.DeletedEntry.whole(entry_id=of[-1])

    write, reading = serving.write, partial(api.reading, serving.engine)
    of_coordinator, entries = f"{COORDINATORS}/{{coordinator_id}}", f"{ACL}/entries"
    return (
        op("POST", INTENTS, "create_intent", "Create an intent; requires a coordinator's key.",
           partial(write, CREATE), Intent, status=201, body=IntentBody, refusals=(409,)),
        op("GET", INTENT, "get_intent", "One intent, for its participants.",
           reading(visible_intent), Intent, refusals=(404,)),
        op("POST", COORDINATORS, "create_coordinator",
           "Let an agent coordinate an intent, within guardrails.",
           coordinate, Coordinator, status=201, body=CoordinatorBody, refusals=(404,)),
        op("GET", of_coordinator, "get_coordinator", "One coordinator.",
           reading(visible_coordinator), Coordinator, refusals=(404,)),
        op("DELETE", of_coordinator, "delete_coordinator",
           "End an agent's coordination of an intent.",
           partial(write, _END_COORDINATOR, action="coordinator.ended", about=_ending),
           Coordinator, refusals=(404,)),
        op("GET", f"{INTENT}/coordinators", "list_coordinators",
           "The coordinators of an intent, including former ones.",
           reading(visible_coordinators), Coordinator, is_list=True, refusals=(404,)),
        op("GET", ACL, "get_access_list", "Who may read an intent, besides its participants.",
           access_list, AccessList, refusals=(404,)),
        op("POST", entries, "create_grant",
           "Grant an agent access to an intent, its tasks, its log and their working memory.",
           partial(write, _GRANT, action="grant.made", about=_may_make), Grant, status=201,
           body=GrantBody, refusals=(404,)),
        op("DELETE", f"{entries}/{{grant_id}}", "delete_grant", "Revoke a grant.",
           revoke, api.DeletedEntry, refusals=(404,)),
    )  # fmt: skip


def _require_govern(tx: Transaction, viewer: Viewer, intent: IntentId, *_: object) -> None:
    if not require_sight(tx, viewer, intent).governs:
        raise Denied(NOT_YOURS)


def _may_make(
    tx: Transaction, viewer: Viewer, intent: IntentId, body: CoordinatorBody | GrantBody,
    *_: object,
) -> Mapping[str, object]:  # fmt: skip
    """Return what to audit of a new coordinator or grant, or raise the refusal."""
    _require_govern(tx, viewer, intent)
    api.require_future(instant_if_any(body.expires_at), tx.now)
    require_room(tx)
    if isinstance(body, CoordinatorBody):
        if len(coordinators_of(tx, intent)) >= MAX_COORDINATORS:
            raise Invalid(
                f"An intent has at most {MAX_COORDINATORS} coordinators, including former ones."
            )
        return {"intent": intent, "coordinator": body.agent_id}
    if len(_grants(tx, intent)) >= MAX_GRANTS:
        raise Invalid(f"An intent has at most {MAX_GRANTS:,} grants.")
    return {"intent": intent, "grantee": body.principal_id}


def _coordinate(
    tx: Transaction, viewer: Viewer, intent: IntentId, body: CoordinatorBody, details: str
) -> Coordinator:
    _may_make(tx, viewer, intent, body)
    made = Coordinator.whole(
        id=CoordinatorId(new_id(tx, "coord")), intent_id=intent, agent_id=body.agent_id,
        details=details, granted_at=tx.now, expires_at=instant_if_any(body.expires_at),
    )  # fmt: skip
    tx[Sql].insert("coordinators", **_COORDINATOR.values(made))
    return made


def visible_coordinator(tx: Transaction, viewer: Viewer, coordinator: CoordinatorId) -> Coordinator:
    record = _coordinator(tx, coordinator)
    if record is None or not standing(tx, viewer, record.intent_id).sees:
        raise NotFound(NO_COORDINATOR)
    return record


def visible_coordinators(tx: Transaction, viewer: Viewer, intent: IntentId) -> list[Coordinator]:
    visible_intent(tx, viewer, intent)
    return coordinators_of(tx, intent)


def _may_end(tx: Transaction, viewer: Viewer, coordinator: CoordinatorId) -> None:
    """Raise Denied unless the viewer may end it, also if it has ended; the coordinator may."""
    record = required(_coordinator(tx, coordinator), NO_COORDINATOR)
    if record.agent_id != viewer.agent:
        _require_govern(tx, viewer, record.intent_id)


def _ending(
    tx: Transaction, viewer: Viewer, coordinator: CoordinatorId
) -> Mapping[str, object] | None:
    """Return what to audit of a coordinator's end, or None if it has ended; may refuse."""
    record = visible_coordinator(tx, viewer, coordinator)
    _may_end(tx, viewer, coordinator)
    about = {"intent": record.intent_id, "coordinator": record.agent_id}
    return None if record.is_ended else about


def _end_coordinator(tx: Transaction, viewer: Viewer, coordinator: CoordinatorId) -> Coordinator:
    if _ending(tx, viewer, coordinator) is not None:
        tx[Sql].run(
            "UPDATE coordinators SET is_ended = TRUE, version = version + 1 WHERE id = :id",
            id=coordinator,
        )
    return required(_coordinator(tx, coordinator), NO_COORDINATOR)


def _grant(
    tx: Transaction, viewer: Viewer, intent: IntentId, body: GrantBody, details: str
) -> Grant:
    _may_make(tx, viewer, intent, body)
    made = Grant.whole(
        id=GrantId(new_id(tx, "grant")), intent=intent, principal_id=body.principal_id,
        permission=body.permission, reason=object_of(details).get("reason"),
        granted_by=viewer.agent, granted_at=tx.now, expires_at=instant_if_any(body.expires_at),
    )  # fmt: skip
    tx[Sql].insert("grants", **_GRANTED.values(made))
    return made


def visible_grants(tx: Transaction, viewer: Viewer, intent: IntentId) -> Sequence[Grant]:
    _require_govern(tx, viewer, intent)
    return _grants(tx, intent)


def _revoked(
    tx: Transaction, viewer: Viewer, intent: IntentId, grant: GrantId
) -> Mapping[str, object]:
    """Return what to audit of the revocation of a grant, or raise the refusal."""
    known = next((it for it in visible_grants(tx, viewer, intent) if it.id == grant), None)
    return {"intent": intent, "grantee": required(known, NO_GRANT).principal_id}


def _revoke(tx: Transaction, viewer: Viewer, intent: IntentId, grant: GrantId) -> None:
    _revoked(tx, viewer, intent, grant)
    tx[Sql].run("DELETE FROM grants WHERE id = :id", id=grant)


_COORDINATE = once(_coordinate, check=require_sight, on_repeat=lambda tx, made, *_: made.at(tx.now))
_END_COORDINATOR = once(_end_coordinator, check=_may_end)
_GRANT, _REVOKE = once(_grant, check=_require_govern), once(_revoke)

# Rows.
_COORDINATOR = RowMapper(
    Coordinator, "coordinators", check=lambda it: stored.guardrails_of(it.details)
)
_GRANTED = RowMapper(Grant, "grants")
_OF_INTENT = "intent = :intent ORDER BY granted_at, id"


def _coordinator(tx: Transaction, coordinator: CoordinatorId) -> Coordinator | None:
    """Return the coordinator, ended or not, regardless of visibility."""
    record = tx[Sql].fetch(_COORDINATOR, "id = :id", id=coordinator)
    return None if record is None else record.at(tx.now)


def coordinators_of(tx: Transaction, intent: IntentId) -> list[Coordinator]:
    """Return all coordinators that an intent has had, oldest first."""
    return [it.at(tx.now) for it in tx[Sql].fetch_all(_COORDINATOR, _OF_INTENT, intent=intent)]


def guardrails(tx: Transaction, intent: IntentId) -> list[stored.Guardrails]:
    """Return the limits of an intent's memory that its current coordinators set."""
    statement = _COORDINATOR.selecting(tx[Sql].dialect.row)
    # A coordinator whose end is damaged still sets its limits.
    which = f"intent = :intent AND NOT coalesce({agent_memory.IS_OVER}, FALSE)"
    rows = tx[Sql].run(statement + which, intent=intent)
    return [stored.guardrails_of(_COORDINATOR(row).details) for row in rows]


def _grants(tx: Transaction, intent: IntentId) -> list[Grant]:
    return tx[Sql].fetch_all(_GRANTED, _OF_INTENT, intent=intent)
