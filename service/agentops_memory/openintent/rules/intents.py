"""Intents: made by whose key may, seen by who takes part (RFC-0001, RFC-0015 §9.1).

Who may make intents is a right of the key: a coordinator reads what the agents remember to
whom it gives tasks, and no agent may make itself one of another's work.
"""

from dataclasses import dataclass

from ...engine.engine import Engine, Ids, Transaction
from ...errors import Conflict, Denied, NotFound
from ...memory.idempotency import IdempotentRequest, idempotent
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.agent_memory import Eyes
from ...memory.model.agents import AgentId
from ...memory.model.intents import Intent, IntentId, Standing
from ...memory.model.stores import Written
from ...memory.redactor import Redactor, RulesOf, default_rules
from ..sql.intents import IntentTable
from .screening import require_plain
from .values import screened

NO_INTENT = "No such intent."


class AlreadyThere(Conflict):
    """What was to be made under an id of the client's is there."""

    code = "already_exists"

    def __init__(self) -> None:
        super().__init__("There is something under this id already.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intents:
    """The intents of one service.

    NotFound for an intent that an agent may not see, as for what is not there; Denied for
    what it may see alone.
    """

    engine: Engine
    rules: RulesOf = default_rules

    async def create(
        self,
        caller: Caller,
        eyes: Eyes,
        details: str,
        id_: IntentId | None = None,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Intent]:
        """Make an intent of the agent that asks; its details are compact JSON of an object.

        Denied without the right to; AlreadyThere for an id that is taken.
        """
        caller.require(Role.WRITER)
        if not (caller.coordinates or eyes.is_admin):
            raise Denied(
                "Your key may not make intents; `keys create --coordinator` makes one that may."
            )
        redactor = redactor_for(self.rules, caller, eyes.agent, id_)
        clean = screened(redactor, details)
        work = idempotent(_create, idempotency, again=_created, ids=_id_of)
        made = await self.engine.write(caller, work, eyes, clean, id_)
        return Written(value=made, redacted=redactor.count)

    async def get(self, caller: Caller, eyes: Eyes, intent: IntentId) -> Intent:
        """The intent."""
        caller.require(Role.READER)
        return await self.engine.read(caller, seen, eyes, intent)


def redactor_for(rules: RulesOf, caller: Caller, *names: str | None) -> Redactor:
    """What takes secrets out for a caller; Invalid for a name of an agent, or an id, with one."""
    redactor = Redactor(rules(caller))
    for name in names:
        if name is not None:
            require_plain(redactor, AgentId(name))
    return redactor


def standing(tx: Transaction, eyes: Eyes, intent: IntentId) -> Standing:
    """What the agent is to an intent; NotFound for one that it may not see."""
    found = tx[IntentTable].standing(intent, eyes)
    if not found.sees:
        raise NotFound(NO_INTENT)
    return found


def seen(tx: Transaction, eyes: Eyes, intent: IntentId) -> Intent:
    """The intent; NotFound for one that the agent may not see."""
    standing(tx, eyes, intent)
    found = tx[IntentTable].get(intent)
    if found is None:
        raise NotFound(NO_INTENT)
    return found


def _create(tx: Transaction, eyes: Eyes, details: str, id_: IntentId | None) -> Intent:
    require_room(tx)
    if id_ is not None and tx[IntentTable].get(id_) is not None:
        raise AlreadyThere
    made = Intent(
        id=id_ or IntentId(new_id(tx, "intent")),
        created_by=eyes.agent,
        details=details,
        created_at=tx.now,
    )
    tx[IntentTable].add(made)
    return made


def new_id(tx: Transaction, kind: str) -> str:
    """A new id: `task_` and the 32 hexadecimal digits of a UUIDv7."""
    return f"{kind}_{tx.new_uid(tx.now).replace('-', '')}"


def _created(tx: Transaction, ids: Ids, eyes: Eyes, _: str, __: IntentId | None) -> Intent:
    return seen(tx, eyes, IntentId(str(ids["id"])))


def _id_of(made: Intent) -> Ids:
    return {"id": made.id}
