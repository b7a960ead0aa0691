"""Intents: made by whose key may, seen by who takes part (RFC-0001, RFC-0015 §9.1).

Who may make intents is a right of the key: a coordinator reads what the agents remember to
whom it gives tasks, and no agent may make itself one of another's work.
"""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from ..engine.engine import Engine, Transaction
from ..errors import Denied, NotFound, required
from ..http.bodies import BODY_CONFIG, fault, must
from ..http.protocol import Operation
from ..light import dataclass
from ..memory.access import AgentId, Caller, Role
from ..memory.agents import IntentId, Standing, Viewer
from ..memory.idempotency import once
from ..memory.redactor import RulesOf, default_rules, require_room
from ..memory.rows import UNSTORED, Column, RowMapper, micros
from ..memory.saves import Written
from ..memory.sight import ACTIVE, DETAILS_OF_INTENT, GRANTED
from ..memory.table import Sql
from . import api
from .api import CHOSEN, JsonObject, Label, Printable, Time, op

T = TypeVar("T")

INTENTS = f"{api.PREFIX}/intents"
INTENT = f"{INTENTS}/{{intent_id}}"
NO_INTENT = api.UNKNOWN["intent_id"]
MAX_TITLE, MAX_DESCRIPTION = 500, 10_000  # characters
MAX_ITEMS = 1_000  # of a list
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON, where a backslash of a text is two


def without_nul(value: Any) -> Any:
    if _NUL.search(json.dumps(value)):  # the package's clients can read all else back
        raise fault("must not contain NUL")
    return value


WithoutNul = AfterValidator(without_nul)
Chosen = Annotated[
    str, must(CHOSEN.fullmatch, "must be 1 to 128 of A-Z, a-z, 0-9, ., _, : and -"),
    Field(json_schema_extra={"maxLength": 128, "pattern": "^[A-Za-z0-9._:-]+$"}),
]  # fmt: skip
Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE), Printable]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION), WithoutNul]
Word = Annotated[str, Field(max_length=MAX_TITLE), Printable]
Words = Annotated[list[Word], Field(max_length=MAX_ITEMS)]
Object = Annotated[JsonObject, WithoutNul, Field(examples=[{}])]
Small = Annotated[int, Field(ge=0, le=2**31 - 1)]


class IntentBody(BaseModel):
    """POST /api/v1/intents; who asks has made it, whatever the body says."""

    model_config = BODY_CONFIG
    id: Chosen | None = None
    title: Title
    description: Description = ""
    state: Object | None = None
    constraints: Object | None = None
    parent_intent_id: Label | None = None
    depends_on: Words | None = None
    governance_policy: Object | None = None


class Intent(api.Detailed):
    """A goal that agents work on."""

    id: IntentId
    title: str
    description: str
    state: JsonObject
    constraints: JsonObject
    parent_intent_id: str | None
    depends_on: list[str]
    governance_policy: JsonObject | None
    status: Literal["active"] = "active"
    version: Annotated[int, UNSTORED] = 1
    created_by: AgentId
    confidence: Annotated[int, UNSTORED] = 0
    created_at: Time
    updated_at: Annotated[Time, Column("created_at")]

    members: ClassVar = DETAILS_OF_INTENT


_INTENT = RowMapper(Intent, "intents")


def operations(intents: "Intents") -> Sequence[Operation]:
    return (
        op("POST", INTENTS, "create_intent", "Create an intent; requires a coordinator's key.",
           intents.create, Intent, status=201, body=IntentBody, refusals=(409,)),
        op("GET", INTENT, "get_intent", "One intent, for its participants.",
           api.reading(intents.engine, visible_intent), Intent, refusals=(404,)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Intents:
    """The intents of one service.

    NotFound for an intent that an agent may not see, as for what is not there; Denied for
    what it may see alone.
    """

    engine: Engine
    rules: RulesOf = default_rules

    async def create(self, caller: Caller, viewer: Viewer, body: IntentBody) -> Written[Intent]:
        """Make an intent of the agent that asks.

        Denied without the right to; AlreadyThere for an id that is taken.
        """
        details = api.details_of(body, but={"id"})
        caller.require(Role.WRITER)
        if not (caller.coordinates or viewer.is_admin):
            raise Denied(
                "Your key may not create intents; `keys create --coordinator` creates one that may."
            )
        redactor = api.redactor_for(self.rules, caller, viewer.agent, body.id)
        clean = api.screened(redactor, details)
        made = await self.engine.write(caller, _CREATE, viewer, clean, body.id)
        return Written(value=made, redacted=redactor.count)


def _create(tx: Transaction, viewer: Viewer, details: str, id_: str | None) -> Intent:
    require_room(tx)
    if id_ is not None and tx[Sql].fetch(_INTENT, "id = :id", id=id_) is not None:
        raise api.AlreadyThere
    made = Intent.whole(
        id=IntentId(id_ or new_id(tx, "intent")), created_by=viewer.agent, details=str(details),
        created_at=tx.now, updated_at=tx.now,
    )  # fmt: skip
    tx[Sql].insert("intents", **_INTENT.values(made))
    return made


def new_id(tx: Transaction, kind: str) -> str:
    """A new id: `task_` and the 32 hexadecimal digits of a UUIDv7."""
    return f"{kind}_{tx.new_uid(tx.now).replace('-', '')}"


def on_repeat(tx: Transaction, viewer: Viewer, intent: str, made: T) -> T:
    """What was made in an intent, for an agent that sees it still."""
    require_sight(tx, viewer, IntentId(intent))
    return made


_CREATE = once(_create, on_repeat=lambda tx, made, viewer, *_: on_repeat(tx, viewer, made.id, made))


def require_sight(tx: Transaction, viewer: Viewer, intent: IntentId, *_: object) -> Standing:
    """What the agent is to an intent; NotFound for one that it may not see."""
    position = standing(tx, viewer, intent)
    if not position.sees:
        raise NotFound(NO_INTENT)
    return position


def visible_intent(tx: Transaction, viewer: Viewer, intent: IntentId) -> Intent:
    """The intent; NotFound for one that the agent may not see."""
    require_sight(tx, viewer, intent)
    return required(tx[Sql].fetch(_INTENT, "id = :id", id=intent), NO_INTENT)


def standing(tx: Transaction, viewer: Viewer, intent: IntentId) -> Standing:
    """What an agent is to an intent; nothing to one that there is not."""
    row = tx[Sql].run(
        f"""SELECT created_by = :agent,
                   EXISTS (SELECT 1
                             FROM coordinators
                            WHERE intent = :id AND agent = :agent AND {ACTIVE}),
                   EXISTS (SELECT 1 FROM tasks WHERE intent = :id AND agent = :agent),
                   EXISTS (SELECT 1
                             FROM grants
                            WHERE intent = :id AND agent = :agent AND {GRANTED})
              FROM intents
             WHERE id = :id""",
        id=intent, agent=viewer.agent, now=micros(tx.now),
    ).fetchone()  # fmt: skip
    if row is None:
        return Standing()
    is_creator, is_coordinator, is_assigned, is_grantee = map(bool, row)
    return Standing(
        is_creator=is_creator, is_coordinator=is_coordinator, is_assigned=is_assigned,
        is_grantee=is_grantee, is_admin=viewer.is_admin,
    )  # fmt: skip
