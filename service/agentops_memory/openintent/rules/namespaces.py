"""Semantic namespaces: those that an agent may read, and who may do what in each (§2.3)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...engine.callbacks import Audit
from ...engine.engine import Engine, Transaction
from ...errors import Conflict, Denied, NotFound
from ...memory.idempotency import is_due, once
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.agent_memory import Access, Eyes, Namespace, Permissions
from ...memory.model.agents import AgentId
from ...memory.model.stores import Written
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...recall.recall import NO_NAMESPACE
from ..sql.namespaces import NamespaceTable
from .values import clean_namespace, require_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionsChange:
    """A change of permissions; None leaves a part as it is."""

    default: Access | None = None
    allow: Mapping[AgentId, Access] | None = None  # all that are named from then on


class OutdatedNamespace(Conflict):
    """The permissions are not at the version that was expected."""

    code = "stale"

    def __init__(self, current: Namespace) -> None:
        super().__init__(f"The namespace is at version {current.version}.")
        self.current = current


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """The semantic namespaces of one service; what an agent may not read is not there."""

    engine: Engine
    audit: Audit
    rules: RulesOf = default_rules

    async def page(
        self, caller: Caller, eyes: Eyes, limit: int, offset: int
    ) -> tuple[int, Sequence[Namespace]]:
        """How many the agent may read, and some of them, by name."""
        caller.require(Role.READER)
        return await self.engine.read(caller, page, eyes, limit, offset)

    async def get(self, caller: Caller, eyes: Eyes, name: str) -> Namespace:
        """The namespace; NotFound for one that is hidden, or of which there is nothing."""
        caller.require(Role.READER)
        clean = clean_namespace(Redactor(self.rules(caller)), name)
        return await self.engine.read(caller, known, eyes, clean)

    async def permit(
        self,
        caller: Caller,
        eyes: Eyes,
        name: str,
        change: PermissionsChange,
        version: int | None = None,
    ) -> Written[Namespace]:
        """Change permissions that are at this version; Denied for who does not administer them.

        A namespace of which there is nothing is made, by administrators alone.
        """
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        for agent in (eyes.agent, *(change.allow or ())):
            require_plain(redactor, agent)
        clean = clean_namespace(redactor, name)
        if after := await self.engine.read(caller, planned, eyes, clean, change, version):
            await asyncio.to_thread(
                self.audit,
                caller,
                "namespace.permitted",
                tenant=caller.tenant,
                agent=eyes.agent,
                namespace=clean,
                default=after.default.name.lower(),
                allow={agent: access.name.lower() for agent, access in after.allow.items()},
            )
        work = once(permit, check=lambda tx, eyes, name, *_: known(tx, eyes, name))
        made = await self.engine.write(caller, work, eyes, clean, change, version)
        return Written(value=made, redacted=redactor.count)


def page(tx: Transaction, eyes: Eyes, limit: int, offset: int) -> tuple[int, Sequence[Namespace]]:
    return tx[NamespaceTable].total(eyes), tx[NamespaceTable].page(eyes, limit, offset)


def known(tx: Transaction, eyes: Eyes, name: str) -> Namespace:
    found = tx[NamespaceTable].get(name, eyes)
    if found is None:
        raise NotFound(NO_NAMESPACE)
    return found


def planned(
    tx: Transaction, eyes: Eyes, name: str, change: PermissionsChange, version: int | None
) -> Permissions | None:
    """The permissions that are to be, or the refusal; None if this request was executed before."""
    if not is_due(tx):
        return None
    found = tx[NamespaceTable].get(name, eyes)
    if found is None and not eyes.is_admin:
        raise NotFound(NO_NAMESPACE)
    if found is not None and found.access < Access.ADMIN:
        raise Denied("The agent does not administer this namespace.")
    if version is not None and version != (found.version if found else 0):
        raise NotFound(NO_NAMESPACE) if found is None else OutdatedNamespace(found)
    before = tx[NamespaceTable].permissions(name)
    return replace(
        before,
        default=before.default if change.default is None else change.default,
        allow=before.allow if change.allow is None else change.allow,
    )


def permit(
    tx: Transaction, eyes: Eyes, name: str, change: PermissionsChange, version: int | None
) -> Namespace:
    after = planned(tx, eyes, name, change, version)
    assert after is not None  # nothing is asked to be done once here
    require_room(tx)
    tx[NamespaceTable].permit(name, after)
    made = known(tx, replace(eyes, is_admin=True), name)
    return replace(made, access=after.of(eyes))
