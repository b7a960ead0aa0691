"""Intents: made by whose key may, seen by who takes part (RFC-0001, RFC-0015 §9.1).

Who may make intents is a right of the key: a coordinator reads what the agents remember to
whom it gives tasks, and no agent may make itself one of another's work.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ...engine.callbacks import Audit
from ...engine.engine import Engine, Transaction
from ...errors import Conflict, Denied, Invalid, NotFound
from ...memory.idempotency import is_due, once
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.agent_memory import Eyes
from ...memory.model.agents import AgentId
from ...memory.model.intents import (
    Coordinator,
    CoordinatorDraft,
    CoordinatorId,
    Grant,
    GrantDraft,
    GrantId,
    Intent,
    IntentId,
    Standing,
)
from ...memory.model.stores import Written
from ...memory.redactor import Redactor, RulesOf, default_rules
from ..sql.intents import IntentTable
from .binding import require_future
from .values import require_plain, screened

T = TypeVar("T")

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
        self, caller: Caller, eyes: Eyes, details: str, id_: IntentId | None = None
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
        work = once(_create, told=lambda tx, made: _told(tx, eyes, made.id, made))
        made = await self.engine.write(caller, work, eyes, clean, id_)
        return Written(value=made, redacted=redactor.count)

    async def get(self, caller: Caller, eyes: Eyes, intent: IntentId) -> Intent:
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


def _told(tx: Transaction, eyes: Eyes, intent: IntentId, made: T) -> T:
    """What was made in an intent, for an agent that sees it still."""
    standing(tx, eyes, intent)
    return made


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


MOST_COORDINATORS, MOST_GRANTS = 100, 1_000  # of an intent

NO_COORDINATOR = "No such coordinator."
NO_GRANT = "No such entry of the access list."
NOT_YOURS = "Only who made the intent, or an administrator, may do that."


@dataclass(frozen=True, slots=True, kw_only=True)
class Participants:
    """Who takes part in the intents of one service.

    NotFound for an intent that an agent may not see, as for what is not there; Denied for
    what it may see alone. Each change is audited first, and not made if that fails.
    """

    engine: Engine
    audit: Audit
    rules: RulesOf = default_rules

    async def coordinate(
        self, caller: Caller, eyes: Eyes, draft: CoordinatorDraft
    ) -> Written[Coordinator]:
        """Let an agent coordinate an intent, which who made it may, and administrators."""
        caller.require(Role.WRITER)
        redactor = redactor_for(self.rules, caller, eyes.agent, draft.agent)
        clean = replace(draft, details=screened(redactor, draft.details))
        if await self.engine.read(caller, _may_make, eyes, draft.intent, draft):
            await self._record(
                caller, "coordinator.made", eyes, intent=draft.intent, coordinator=draft.agent
            )
        work = once(_coordinate, told=lambda tx, made: _told(tx, eyes, made.intent, made))
        made = await self.engine.write(caller, work, eyes, clean)
        return Written(value=made, redacted=redactor.count)

    async def coordinator(
        self, caller: Caller, eyes: Eyes, coordinator: CoordinatorId
    ) -> Coordinator:
        """A coordinator of an intent that the agent sees."""
        caller.require(Role.READER)
        return await self.engine.read(caller, _coordinator, eyes, coordinator)

    async def coordinators(
        self, caller: Caller, eyes: Eyes, intent: IntentId
    ) -> Sequence[Coordinator]:
        """Those of an intent, the first first."""
        caller.require(Role.READER)
        return await self.engine.read(caller, _coordinators, eyes, intent)

    async def end_coordinator(
        self, caller: Caller, eyes: Eyes, coordinator: CoordinatorId
    ) -> Coordinator:
        """Let an agent coordinate no more; it may end that itself."""
        caller.require(Role.WRITER)
        redactor_for(self.rules, caller, eyes.agent)
        ending = await self.engine.read(caller, _ending, eyes, coordinator)
        if ending is not None:
            await self._record(
                caller, "coordinator.ended", eyes, intent=ending.intent, coordinator=ending.agent
            )
        work = once(_end_coordinator, check=_may_end)
        return await self.engine.write(caller, work, eyes, coordinator)

    async def grant(
        self, caller: Caller, eyes: Eyes, intent: IntentId, draft: GrantDraft
    ) -> Written[Grant]:
        """Let an agent read an intent, its tasks, its log and their working memory."""
        caller.require(Role.WRITER)
        redactor = redactor_for(self.rules, caller, eyes.agent, draft.agent)
        reason = None if draft.reason is None else redactor.whole(draft.reason)
        if await self.engine.read(caller, _may_make, eyes, intent, draft):
            await self._record(caller, "grant.made", eyes, intent=intent, grantee=draft.agent)
        work = once(_grant, check=lambda tx, eyes, intent, _: _require_govern(tx, eyes, intent))
        made = await self.engine.write(caller, work, eyes, intent, replace(draft, reason=reason))
        return Written(value=made, redacted=redactor.count)

    async def grants(self, caller: Caller, eyes: Eyes, intent: IntentId) -> Sequence[Grant]:
        """The grants on an intent, for who may make them."""
        caller.require(Role.READER)
        return await self.engine.read(caller, _grants, eyes, intent)

    async def revoke(self, caller: Caller, eyes: Eyes, intent: IntentId, grant: GrantId) -> None:
        """Take a grant back."""
        caller.require(Role.WRITER)
        redactor_for(self.rules, caller, eyes.agent)
        found = await self.engine.read(caller, _revoked, eyes, intent, grant)
        if found is not None:
            await self._record(caller, "grant.revoked", eyes, intent=intent, grantee=found.agent)
        work = once(_revoke)
        await self.engine.write(caller, work, eyes, intent, grant)

    async def _record(self, caller: Caller, action: str, eyes: Eyes, **fields: object) -> None:
        await asyncio.to_thread(
            self.audit, caller, action, tenant=caller.tenant, agent=eyes.agent, **fields
        )


def _require_govern(tx: Transaction, eyes: Eyes, intent: IntentId) -> None:
    if not standing(tx, eyes, intent).governs:
        raise Denied(NOT_YOURS)


def _may_make(
    tx: Transaction, eyes: Eyes, intent: IntentId, draft: CoordinatorDraft | GrantDraft
) -> bool:
    """Whether a coordinator or a grant is to be made, or the refusal; not if it was before."""
    if not is_due(tx):
        return False
    _require_govern(tx, eyes, intent)
    require_future(draft.expires_at, tx.now)
    require_room(tx)
    if isinstance(draft, CoordinatorDraft):
        if len(tx[IntentTable].coordinators(intent)) >= MOST_COORDINATORS:
            raise Invalid(f"An intent has at most {MOST_COORDINATORS} coordinators, ended too.")
    elif len(tx[IntentTable].grants(intent)) >= MOST_GRANTS:
        raise Invalid(f"An intent has at most {MOST_GRANTS:,} grants.")
    return True


def _coordinate(tx: Transaction, eyes: Eyes, draft: CoordinatorDraft) -> Coordinator:
    _may_make(tx, eyes, draft.intent, draft)
    made = Coordinator(
        id=CoordinatorId(new_id(tx, "coord")),
        intent=draft.intent,
        agent=draft.agent,
        details=draft.details,
        granted_at=tx.now,
        expires_at=draft.expires_at,
    )
    tx[IntentTable].add_coordinator(made)
    return made


def _coordinator(tx: Transaction, eyes: Eyes, coordinator: CoordinatorId) -> Coordinator:
    found = tx[IntentTable].coordinator(coordinator)
    if found is None or not tx[IntentTable].standing(found.intent, eyes).sees:
        raise NotFound(NO_COORDINATOR)
    return found


def _coordinators(tx: Transaction, eyes: Eyes, intent: IntentId) -> Sequence[Coordinator]:
    seen(tx, eyes, intent)
    return tx[IntentTable].coordinators(intent)


def _may_end(tx: Transaction, eyes: Eyes, coordinator: CoordinatorId) -> None:
    """Refuse who may not end it, also once it has ended; it may not see the intent any more."""
    found = tx[IntentTable].coordinator(coordinator)
    if found is None:
        raise NotFound(NO_COORDINATOR)
    if found.agent != eyes.agent:
        _require_govern(tx, eyes, found.intent)


def _ending(tx: Transaction, eyes: Eyes, coordinator: CoordinatorId) -> Coordinator | None:
    """The coordinator that is to be ended, or the refusal; None if it was done before."""
    if not is_due(tx):
        return None
    found = _coordinator(tx, eyes, coordinator)
    if found.agent != eyes.agent:
        _require_govern(tx, eyes, found.intent)
    return None if found.is_ended else found


def _end_coordinator(tx: Transaction, eyes: Eyes, coordinator: CoordinatorId) -> Coordinator:
    if _ending(tx, eyes, coordinator) is not None:
        tx[IntentTable].end_coordinator(coordinator)
    found = tx[IntentTable].coordinator(coordinator)
    assert found is not None  # it was there a moment ago, and none is ever removed
    return found


def _grant(tx: Transaction, eyes: Eyes, intent: IntentId, draft: GrantDraft) -> Grant:
    _may_make(tx, eyes, intent, draft)
    made = Grant(
        id=GrantId(new_id(tx, "grant")),
        intent=intent,
        agent=draft.agent,
        permission=draft.permission,
        reason=draft.reason,
        granted_by=eyes.agent,
        granted_at=tx.now,
        expires_at=draft.expires_at,
    )
    tx[IntentTable].add_grant(made)
    return made


def _grants(tx: Transaction, eyes: Eyes, intent: IntentId) -> Sequence[Grant]:
    _require_govern(tx, eyes, intent)
    return tx[IntentTable].grants(intent)


def _known_grant(tx: Transaction, eyes: Eyes, intent: IntentId, grant: GrantId) -> Grant:
    for each in _grants(tx, eyes, intent):
        if each.id == grant:
            return each
    raise NotFound(NO_GRANT)


def _revoked(tx: Transaction, eyes: Eyes, intent: IntentId, grant: GrantId) -> Grant | None:
    """The grant that is to be taken back, or the refusal; None if it was done before."""
    return _known_grant(tx, eyes, intent, grant) if is_due(tx) else None


def _revoke(tx: Transaction, eyes: Eyes, intent: IntentId, grant: GrantId) -> None:
    tx[IntentTable].remove_grant(_known_grant(tx, eyes, intent, grant).id)
