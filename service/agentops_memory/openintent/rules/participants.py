"""Who takes part in an intent: coordinators, and those with a grant (RFC-0015 §6.6, §2.1)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...engine.callbacks import Audit
from ...engine.engine import Engine, Ids, Transaction
from ...errors import Denied, Invalid, NotFound
from ...memory.idempotency import IdempotentRequest, idempotent, is_due
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.agent_memory import Eyes
from ...memory.model.intents import (
    Coordinator,
    CoordinatorDraft,
    CoordinatorId,
    Grant,
    GrantDraft,
    GrantId,
    IntentId,
)
from ...memory.model.stores import Written
from ...memory.redactor import RulesOf, default_rules
from ..sql.intents import IntentTable
from .intents import new_id, redactor_for, seen, standing
from .lifetime import require_future
from .values import screened

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
        self,
        caller: Caller,
        eyes: Eyes,
        draft: CoordinatorDraft,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Coordinator]:
        """Let an agent coordinate an intent, which who made it may, and administrators."""
        caller.require(Role.WRITER)
        redactor = redactor_for(self.rules, caller, eyes.agent, draft.agent)
        clean = replace(draft, details=screened(redactor, draft.details))
        asked = draft.intent, draft, idempotency
        if await self.engine.read(caller, _may_make, eyes, *asked):
            await self._record(
                caller, "coordinator.made", eyes, intent=draft.intent, coordinator=draft.agent
            )
        work = idempotent(_coordinate, idempotency, again=_coordinated, ids=_id_of)
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
        self,
        caller: Caller,
        eyes: Eyes,
        coordinator: CoordinatorId,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Coordinator:
        """Let an agent coordinate no more; it may end that itself."""
        caller.require(Role.WRITER)
        redactor_for(self.rules, caller, eyes.agent)
        ending = await self.engine.read(caller, _ending, eyes, coordinator, idempotency)
        if ending is not None:
            await self._record(
                caller, "coordinator.ended", eyes, intent=ending.intent, coordinator=ending.agent
            )
        work = idempotent(_end_coordinator, idempotency, again=_coordinator_again)
        return await self.engine.write(caller, work, eyes, coordinator)

    async def grant(
        self,
        caller: Caller,
        eyes: Eyes,
        intent: IntentId,
        draft: GrantDraft,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Grant]:
        """Let an agent read an intent, its tasks, its log and their working memory."""
        caller.require(Role.WRITER)
        redactor = redactor_for(self.rules, caller, eyes.agent, draft.agent)
        reason = None if draft.reason is None else redactor.whole(draft.reason)
        if await self.engine.read(caller, _may_make, eyes, intent, draft, idempotency):
            await self._record(caller, "grant.made", eyes, intent=intent, grantee=draft.agent)
        work = idempotent(_grant, idempotency, again=_granted, ids=_id_of)
        made = await self.engine.write(caller, work, eyes, intent, replace(draft, reason=reason))
        return Written(value=made, redacted=redactor.count)

    async def grants(self, caller: Caller, eyes: Eyes, intent: IntentId) -> Sequence[Grant]:
        """The grants on an intent, for who may make them."""
        caller.require(Role.READER)
        return await self.engine.read(caller, _grants, eyes, intent)

    async def revoke(
        self,
        caller: Caller,
        eyes: Eyes,
        intent: IntentId,
        grant: GrantId,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> None:
        """Take a grant back."""
        caller.require(Role.WRITER)
        redactor_for(self.rules, caller, eyes.agent)
        found = await self.engine.read(caller, _revoked, eyes, intent, grant, idempotency)
        if found is not None:
            await self._record(caller, "grant.revoked", eyes, intent=intent, grantee=found.agent)

        def again(*_: object) -> None:
            """What is taken back stays so."""

        work = idempotent(_revoke, idempotency, again=again)
        await self.engine.write(caller, work, eyes, intent, grant)

    async def _record(self, caller: Caller, action: str, eyes: Eyes, **fields: object) -> None:
        await asyncio.to_thread(
            self.audit, caller, action, tenant=caller.tenant, agent=eyes.agent, **fields
        )


def _id_of(made: Coordinator | Grant) -> Ids:
    return {"id": made.id}


def _require_govern(tx: Transaction, eyes: Eyes, intent: IntentId) -> None:
    if not standing(tx, eyes, intent).governs:
        raise Denied(NOT_YOURS)


def _may_make(
    tx: Transaction,
    eyes: Eyes,
    intent: IntentId,
    draft: CoordinatorDraft | GrantDraft,
    idempotency: IdempotentRequest | None = None,
) -> bool:
    """Whether a coordinator or a grant is to be made, or the refusal; not if it was before."""
    if not is_due(tx, idempotency):
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


def _coordinated(tx: Transaction, ids: Ids, eyes: Eyes, _: CoordinatorDraft) -> Coordinator:
    return _coordinator(tx, eyes, CoordinatorId(str(ids["id"])))


def _coordinator(tx: Transaction, eyes: Eyes, coordinator: CoordinatorId) -> Coordinator:
    found = tx[IntentTable].coordinator(coordinator)
    if found is None or not tx[IntentTable].standing(found.intent, eyes).sees:
        raise NotFound(NO_COORDINATOR)
    return found


def _coordinators(tx: Transaction, eyes: Eyes, intent: IntentId) -> Sequence[Coordinator]:
    seen(tx, eyes, intent)
    return tx[IntentTable].coordinators(intent)


def _ending(
    tx: Transaction, eyes: Eyes, coordinator: CoordinatorId, idempotency: IdempotentRequest | None
) -> Coordinator | None:
    """The coordinator that is to be ended, or the refusal; None if it was done before."""
    if not is_due(tx, idempotency):
        return None
    found = _coordinator(tx, eyes, coordinator)
    if found.agent != eyes.agent:
        _require_govern(tx, eyes, found.intent)
    return None if found.is_ended else found


def _end_coordinator(tx: Transaction, eyes: Eyes, coordinator: CoordinatorId) -> Coordinator:
    if _ending(tx, eyes, coordinator, None) is not None:
        tx[IntentTable].end_coordinator(coordinator)
    found = tx[IntentTable].coordinator(coordinator)
    assert found is not None  # it was there a moment ago, and none is ever removed
    return found


def _coordinator_again(
    tx: Transaction, _: Ids, eyes: Eyes, coordinator: CoordinatorId
) -> Coordinator:
    found = tx[IntentTable].coordinator(coordinator)
    if found is None:
        raise NotFound(NO_COORDINATOR)
    if found.agent != eyes.agent:
        _require_govern(tx, eyes, found.intent)
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


def _granted(tx: Transaction, ids: Ids, eyes: Eyes, intent: IntentId, _: GrantDraft) -> Grant:
    return _known_grant(tx, eyes, intent, GrantId(str(ids["id"])))


def _grants(tx: Transaction, eyes: Eyes, intent: IntentId) -> Sequence[Grant]:
    _require_govern(tx, eyes, intent)
    return tx[IntentTable].grants(intent)


def _known_grant(tx: Transaction, eyes: Eyes, intent: IntentId, grant: GrantId) -> Grant:
    for each in _grants(tx, eyes, intent):
        if each.id == grant:
            return each
    raise NotFound(NO_GRANT)


def _revoked(
    tx: Transaction,
    eyes: Eyes,
    intent: IntentId,
    grant: GrantId,
    idempotency: IdempotentRequest | None,
) -> Grant | None:
    """The grant that is to be taken back, or the refusal; None if it was done before."""
    return _known_grant(tx, eyes, intent, grant) if is_due(tx, idempotency) else None


def _revoke(tx: Transaction, eyes: Eyes, intent: IntentId, grant: GrantId) -> None:
    tx[IntentTable].remove_grant(_known_grant(tx, eyes, intent, grant).id)
