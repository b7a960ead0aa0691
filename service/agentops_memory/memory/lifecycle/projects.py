"""Whole projects: listed, renamed, merged into others, erased."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...agentops.transfers.storing import merge_at_key
from ...engine.callbacks import Audit, noop
from ...engine.engine import Engine, Transaction
from ...errors import Conflict, Denied, Invalid, NotFound
from ..limits import faults_of, is_known_project, refuse
from ..model.access import Caller, Role
from ..model.erasure import Erasure, ErasureId
from ..model.kinds import ErasureKind
from ..model.memory import ChangeKind
from ..model.space import Extent, Listed, Project
from ..redactor import MAX_PROJECT
from ..sql.idempotency_records import IdempotencyTable
from ..sql.lifecycles import LifecycleTable
from ..sql.memories import MemoryTable
from ..sql.projects import ProjectTable
from ..sql.receipts import ReceiptTable
from ..writes import revised

BATCH = 200  # memories erased in one transaction; saves wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPlan:
    """What a rename or a merge moves, and how many pairs of memories share a key."""

    extent: Extent
    same_keys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Projects:
    """The projects of one service.

    A change needs the role admin, and a caller with access to every project it names, or
    to all projects if one of these holds global memories; else it raises Denied. An empty
    project raises NotFound. A change is audited first, and not made if that fails.
    """

    engine: Engine
    audit: Audit
    on_erased: Callable[[Caller], None] = noop

    async def list(self, caller: Caller) -> list[Listed]:
        """The non-empty projects that the caller has access to, by name."""
        caller.require(Role.READER)
        names = await self.engine.read(caller, names_of_projects)
        return [await self.engine.read(caller, listed, name) for name in names]

    async def plan_rename(self, caller: Caller, project: Project, new: Project) -> ProjectPlan:
        """A dry run of `rename`, with its errors."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_rename, project, new)

    async def rename(self, caller: Caller, project: Project, new: Project) -> ProjectPlan:
        """Rename a project; Conflict if the new name is that of a non-empty one."""
        plan = await self.plan_rename(caller, project, new)
        await self._record(caller, "project.renamed", project, plan.extent, to=new)
        return await self.engine.write(caller, rename, project, new)

    async def plan_merge(self, caller: Caller, project: Project, into: Project) -> ProjectPlan:
        """A dry run of `merge`, with its errors."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_merge, project, into)

    async def merge(self, caller: Caller, project: Project, into: Project) -> ProjectPlan:
        """Move everything of a project into another, non-empty one.

        Where both have a live memory at one key, the target's memory takes the text that
        was updated later; the other is soft-deleted, with its revisions.
        """
        plan = await self.plan_merge(caller, project, into)
        await self._record(
            caller, "project.merged", project, plan.extent, into=into, same_keys=plan.same_keys
        )
        return await self.engine.write(caller, merge, project, into)

    async def plan_erasure(self, caller: Caller, project: Project) -> Extent:
        """A dry run of `erase`, with its errors: empty for a project that was erased before."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_erasure, project)

    async def erase(
        self, caller: Caller, project: Project, progress: Callable[[Erasure], None] = noop
    ) -> Erasure:
        """Erase a project in short transactions, with what is saved into it meanwhile.

        An interrupted erasure is resumed. The answer is the receipt: for an empty project
        that was erased before, the newest one.
        """
        if extent := await self.plan_erasure(caller, project):
            await self._record(caller, "project.erased", project, extent)
        begun = await self.engine.write(caller, begin_erasure, project)
        if not begun.goes_on:
            return begun
        while (erasure := await self.engine.write(caller, erase_some, begun.id)).goes_on:
            progress(erasure)
        self.on_erased(caller)
        return erasure

    async def _record(
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
    return tx[ProjectTable].names()


def listed(tx: Transaction, project: Project) -> Listed:
    return tx[ProjectTable].listed(project)


def planned_rename(tx: Transaction, project: Project, new: Project) -> ProjectPlan:
    extent = _extent(tx, project, new)
    if len(new) > MAX_PROJECT:
        raise Invalid(f"A project's name has at most {MAX_PROJECT} characters.")
    if is_known_project(tx, new):
        raise Conflict("There is a project with the new name; merge the one into the other.")
    refuse(faults_of({"project": new}))
    return ProjectPlan(extent=extent)


def rename(tx: Transaction, project: Project, new: Project) -> ProjectPlan:
    plan = planned_rename(tx, project, new)
    tx[ProjectTable].rename(project, new)
    return plan


def planned_merge(tx: Transaction, project: Project, into: Project) -> ProjectPlan:
    extent = _extent(tx, project, into)
    _require_not_empty(tx[ProjectTable].extent(into))
    return ProjectPlan(extent=extent, same_keys=len(tx[ProjectTable].same_keys(project, into)))


def merge(tx: Transaction, project: Project, into: Project) -> ProjectPlan:
    plan = planned_merge(tx, project, into)
    for ours, theirs in tx[ProjectTable].same_keys(project, into):
        memory, held = tx[MemoryTable].get(ours), tx[MemoryTable].get(theirs)
        assert memory is not None
        assert held is not None
        merge_at_key(tx, held, memory)
        revised(tx, memory, replace(memory, deleted_at=tx.now), ChangeKind.DELETED)
    tx[LifecycleTable].release_keys(project, into)
    tx[ProjectTable].merge(project, into)
    return plan


def planned_erasure(tx: Transaction, project: Project) -> Extent:
    _require_access(tx, project)
    extent = tx[ProjectTable].extent(project)
    if tx[ReceiptTable].newest_of(project) is None:
        _require_not_empty(extent)
    return extent


def begin_erasure(tx: Transaction, project: Project) -> Erasure:
    """A new receipt, or that of an unfinished erasure, or the last one of an empty project."""
    _require_access(tx, project)
    extent, newest = tx[ProjectTable].extent(project), tx[ReceiptTable].newest_of(project)
    if newest is not None and (newest.goes_on or not extent):
        return newest
    _require_not_empty(extent)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=ErasureKind.PROJECT,
        project=project,
        erased_at=tx.now,
        goes_on=True,
    )
    tx[ReceiptTable].add(erasure)
    return erasure


def erase_some(tx: Transaction, erasure: ErasureId) -> Erasure:
    """Erase the next batch; the receipt after it."""
    found = tx[ReceiptTable].get(erasure)
    if found is None:  # the tenant was erased meanwhile
        raise NotFound("No such project.")
    if not found.goes_on:  # a concurrent request has completed it
        return found
    _require_access(tx, found.project)
    if memories := tx[ProjectTable].some(found.project, BATCH):
        tx[ReceiptTable].extend(erasure, memories, tx[MemoryTable].erase_some(memories))
    else:
        tx[ReceiptTable].complete(erasure, tx[ProjectTable].erase_sessions(found.project))
        tx[IdempotencyTable].erase_answers()
    now = tx[ReceiptTable].get(erasure)
    assert now is not None
    return now


def _extent(tx: Transaction, project: Project, other: Project) -> Extent:
    """What a project holds that is renamed to or merged into the other; or the refusal."""
    _require_access(tx, project, other)
    if project == other:
        raise Invalid("The two projects are the same.")
    extent = tx[ProjectTable].extent(project)
    _require_not_empty(extent)
    erasures = map(tx[ReceiptTable].newest_of, (project, other))
    if any(erasure is not None and erasure.goes_on for erasure in erasures):
        raise Conflict(
            "The project is being erased, or was begun to be; erase it to the end first."
        )
    return extent


def _require_access(tx: Transaction, *projects: Project) -> None:
    for project in projects:
        if not project:
            raise Invalid("A project has a name.")
        tx.caller.require_project(project)
    if tx.caller.projects.are_everything:
        return
    if any(tx[ProjectTable].has_global(project) for project in projects):
        raise Denied("A project with global memories is changed with a key for every project.")


def _require_not_empty(extent: Extent) -> None:
    if not extent:
        raise NotFound("No such project.")
