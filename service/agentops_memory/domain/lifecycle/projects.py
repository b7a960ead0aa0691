"""Projects as a whole: listed, renamed, merged into others, erased."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import Conflict, Denied, Invalid, NotFound
from ..memories.new_names import require_project
from ..memories.redactor import MAX_PROJECT
from ..memories.writes import revised
from ..model.access import Caller, Role
from ..model.erasure import Erasure, ErasureId, ErasureKind
from ..model.memory import ChangeKind
from ..model.space import Project
from ..model.totals import Extent, Listed
from ..ports.audit import Audit, noop
from ..ports.engine import Engine, Transaction
from ..transfer.rows import merged

BATCH = 200  # memories that are erased in one transaction; saves wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a rename or a merge does: what it moves, and how often two memories become one."""

    extent: Extent
    same_keys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Projects:
    """The projects of one service.

    A change needs the role admin and a caller that acts on every project that
    is named, and on every project there is if there are global memories in it: else
    it is refused with Denied. A project that holds nothing is refused with NotFound.
    What is changed is audited first, and not done if it cannot be.
    """

    engine: Engine
    audit: Audit
    on_erased: Callable[[Caller], None] = noop

    async def list(self, caller: Caller) -> list[Listed]:
        """The projects that hold anything and that the caller acts on, by name."""
        caller.require(Role.READER)
        names = await self.engine.read(caller, names_of_projects)
        return [await self.engine.read(caller, listed, name) for name in names]

    async def plan_rename(self, caller: Caller, project: Project, new: Project) -> Plan:
        """What `rename` would do, or its refusal; nothing is changed."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_rename, project, new)

    async def rename(self, caller: Caller, project: Project, new: Project) -> Plan:
        """Give a project another name. Refused with Conflict if that one holds anything."""
        plan = await self.plan_rename(caller, project, new)
        await self._note(caller, "project.renamed", project, plan.extent, to=new)
        return await self.engine.write(caller, rename, project, new)

    async def plan_merge(self, caller: Caller, project: Project, into: Project) -> Plan:
        """What `merge` would do, or its refusal; nothing is changed."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_merge, project, into)

    async def merge(self, caller: Caller, project: Project, into: Project) -> Plan:
        """Move all of a project into another, which must hold something, too.

        Where both have a live memory at one key, the text that was updated later stays,
        in the other's memory; the moved one is deleted, and keeps its history.
        """
        plan = await self.plan_merge(caller, project, into)
        await self._note(
            caller, "project.merged", project, plan.extent, into=into, same_keys=plan.same_keys
        )
        return await self.engine.write(caller, merge, project, into)

    async def plan_erasure(self, caller: Caller, project: Project) -> Extent:
        """What `erase` would remove, or its refusal; nothing is changed.

        That is nothing for a project that was erased and of which `erase` has the receipt.
        """
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_erasure, project)

    async def erase(
        self, caller: Caller, project: Project, progress: Callable[[Erasure], None] = noop
    ) -> Erasure:
        """Remove all of a project, a part at a time; others save meanwhile. The receipt.

        What is saved into it meanwhile goes, too. One that was interrupted goes on where
        it was. Of a project that was erased and holds nothing the last receipt is answered.
        """
        if extent := await self.plan_erasure(caller, project):
            await self._note(caller, "project.erased", project, extent)
        begun = await self.engine.write(caller, begin_erasure, project)
        if not begun.goes_on:
            return begun
        while (erasure := await self.engine.write(caller, erase_some, begun.id)).goes_on:
            progress(erasure)
        self.on_erased(caller)
        return erasure

    async def _note(
        self, caller: Caller, action: str, project: Project, extent: Extent, **fields: object
    ) -> None:
        await asyncio.to_thread(
            self.audit,
            caller,
            action,
            tenant=caller.tenant,
            project=project,
            observations=extent.memories,
            revisions=extent.revisions,
            sessions=extent.sessions,
            **fields,
        )


def names_of_projects(tx: Transaction) -> list[Project]:
    return tx.projects.names()


def listed(tx: Transaction, project: Project) -> Listed:
    return tx.projects.listed(project)


def planned_rename(tx: Transaction, project: Project, new: Project) -> Plan:
    extent = _extent(tx, project, new)
    _require_at_rest(tx, project, new)
    if len(new) > MAX_PROJECT:
        raise Invalid(f"A project's name has at most {MAX_PROJECT} characters.")
    if tx.projects.exists(new):
        raise Conflict("There is a project with the new name; merge the one into the other.")
    require_project(new)
    return Plan(extent=extent)


def rename(tx: Transaction, project: Project, new: Project) -> Plan:
    plan = planned_rename(tx, project, new)
    tx.projects.rename(project, new)
    return plan


def planned_merge(tx: Transaction, project: Project, into: Project) -> Plan:
    extent = _extent(tx, project, into)
    _require_at_rest(tx, project, into)
    _require_held(tx.projects.extent(into))
    return Plan(extent=extent, same_keys=len(tx.projects.same_keys(project, into)))


def merge(tx: Transaction, project: Project, into: Project) -> Plan:
    plan = planned_merge(tx, project, into)
    for ours, theirs in tx.projects.same_keys(project, into):
        memory, held = tx.memories.get(ours), tx.memories.get(theirs)
        assert memory is not None
        assert held is not None
        merged(tx, held, memory)
        revised(tx, memory, replace(memory, deleted_at=tx.now), ChangeKind.DELETED)
    tx.projects.merge(project, into)
    return plan


def planned_erasure(tx: Transaction, project: Project) -> Extent:
    _require(tx, project)
    extent = tx.projects.extent(project)
    if tx.receipts.newest_of(project) is None:
        _require_held(extent)
    return extent


def begin_erasure(tx: Transaction, project: Project) -> Erasure:
    """The receipt that goes on; or an earlier one, of a project that holds nothing."""
    _require(tx, project)
    extent, newest = tx.projects.extent(project), tx.receipts.newest_of(project)
    if newest is not None and (newest.goes_on or not extent):
        return newest
    _require_held(extent)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=ErasureKind.PROJECT,
        project=project,
        memories=(),
        observations=0,
        revisions=0,
        erased_at=tx.now,
        goes_on=True,
    )
    tx.receipts.add(erasure)
    return erasure


def erase_some(tx: Transaction, erasure: ErasureId) -> Erasure:
    """Do a part of an erasure that has begun; the receipt as it is then."""
    found = tx.receipts.get(erasure)
    if found is None:  # nor is the tenant, who was erased meanwhile
        raise NotFound("No such project.")
    if not found.goes_on:  # another, who asked for the same, has ended it
        return found
    _require(tx, found.project)
    if tx.imports.erase_some(found.project, BATCH):
        return found
    memories = tx.projects.some(found.project, BATCH)
    if memories:
        tx.receipts.extend(erasure, memories, tx.memories.erase_some(memories))
    else:
        tx.receipts.complete(erasure, tx.projects.erase_sessions(found.project))
    now = tx.receipts.get(erasure)
    assert now is not None
    return now


def _extent(tx: Transaction, project: Project, other: Project) -> Extent:
    _require(tx, project, other)
    if project == other:
        raise Invalid("The two projects are the same.")
    extent = tx.projects.extent(project)
    _require_held(extent)
    return extent


def _require(tx: Transaction, *projects: Project) -> None:
    for project in projects:
        if not project:
            raise Invalid("A project has a name.")
        tx.caller.require_project(project)
    if tx.caller.projects.are_everything:
        return
    if any(tx.projects.has_global(project) for project in projects):
        raise Denied("A project with global memories is changed with a key for every project.")


def _require_held(extent: Extent) -> None:
    if not extent:
        raise NotFound("No such project.")


def _require_at_rest(tx: Transaction, *projects: Project) -> None:
    if any(_going_on(tx, project) for project in projects):
        raise Conflict(
            "The project is being erased, or was begun to be; erase it to the end first."
        )


def _going_on(tx: Transaction, project: Project) -> Erasure | None:
    newest = tx.receipts.newest_of(project)
    return newest if newest is not None and newest.goes_on else None
