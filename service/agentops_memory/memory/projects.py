"""Operations on whole projects: list, rename, merge and erase."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from ..engine.engine import Audit, Engine, RowCounts, Transaction, audited, noop
from ..errors import Conflict, Denied, Invalid, NotFound, required
from ..light import dataclass, replace
from .access import Caller, Role
from .agent_memory import Tier
from .erasure import MAX_STEP, Erasure, ErasureId, ReceiptTable
from .idempotency import IdempotencyTable
from .imports import merge_at_key
from .memories import MemoryTable
from .memory import ENDED, REVISIONS_OF, ChangeKind, MemoryId, indexed, live, undeleted
from .redactor import MAX_PROJECT, faults_of, is_known_project, refuse
from .rows import instant, portion
from .saves import revised
from .space import GLOBAL_AREA, OF_A_PROJECT, ErasureKind, Project
from .table import GLOBAL, Sql


class Listed(NamedTuple):
    """A project in the list of projects: its live memories, and when one last changed."""

    project: Project
    memories: int
    sessions: int
    changed_at: datetime | None


class Extent(NamedTuple):
    """The numbers of rows of a project; `memories` includes the deleted ones.

    `shared_sessions` counts sessions of the project that contain memories of other projects.
    `same_keys` counts the pairs of memories that have the same key in both merged projects.
    """

    memories: int
    deleted: int
    revisions: int
    sessions: int
    shared_sessions: int
    same_keys: int = 0

    def __bool__(self) -> bool:
        return bool(self.memories or self.sessions)


SPACES = "(SELECT id FROM spaces WHERE project = :project)"
# Pairs of spaces of two projects with the same scope.
SAME_SCOPES = """SELECT s.id AS source, t.id AS target
             FROM spaces s
             JOIN spaces t ON t.project = :into AND t.scope = s.scope
            WHERE s.project = :project"""
BATCH = 200  # memories erased in one transaction, during which saves wait
HAS_MEMORIES = "EXISTS (SELECT 1 FROM memories WHERE space_id = s.id)"  # live or deleted


def names(tx: Transaction, *, with_deleted: bool = True) -> list[Project]:
    """Return the projects with sessions or memories that the caller has access to, by name."""
    sql, by_time = tx[Sql], tx[Sql].dialect.hint("memories_by_time")
    has_live = f"SELECT 1 FROM memories m {by_time} WHERE m.space_id = s.id AND {live('m')}"
    return sql.texts(
        f"""SELECT project
              FROM (SELECT project
                      FROM spaces s
                     WHERE {OF_A_PROJECT}
                           AND {HAS_MEMORIES if with_deleted else f"EXISTS ({has_live})"}
                     UNION
                    SELECT project FROM sessions) named
             WHERE {sql.acts_on("project")}
          ORDER BY project""",
    )


def row_counts(tx: Transaction) -> RowCounts:
    """Count the rows of the whole tenant, by noun."""
    return RowCounts(*tx[Sql].run(_ROWS).fetchall()[0])


def _next_batch(tx: Transaction, project: Project) -> list[MemoryId]:
    """Return a batch of memories to erase: the newest live ones first, deleted ones last.

    No remaining memory borrows context from them. Long memories make the batch smaller.
    """
    sql, dialect = tx[Sql], tx[Sql].dialect
    # Memories borrow context from earlier ones only, so no remaining memory borrows from these.
    newest = f"""SELECT n.id
                   FROM memories n {dialect.hint("memories_in_space")}
                  WHERE n.space_id = s.id AND {undeleted("n")}
               ORDER BY n.id DESC
                  LIMIT {BATCH}"""
    undone = f"""SELECT m.id, length(m.content)
                   FROM spaces s
                        {dialect.each(newest)}
                  WHERE s.project = :project
               ORDER BY m.id DESC
                  LIMIT {BATCH}"""
    every = f"""SELECT id, length(content)
                  FROM memories {dialect.hint("memories_by_hash")}
                 WHERE space_id IN {SPACES}
                 LIMIT {BATCH}"""
    rows = sql.run(undone, project=project).fetchall() or sql.run(every, project=project)
    return [id_ for id_, _ in portion(rows, MAX_STEP, lambda row: row[1])]


def _erase_sessions(tx: Transaction, project: Project) -> int:
    """Remove the sessions and the spaces of an emptied project; return the number of sessions.

    A session with memories of other projects stays without its summary, and moves to the
    project of the oldest of these memories.
    """
    sql = tx[Sql]
    sql.run(  # also for a session that stays
        """DELETE FROM transcripts
            WHERE session IN (SELECT number FROM sessions WHERE project = :project)""",
        project=project,
    )
    sql.run(
        """UPDATE sessions
              SET summary = '', message_count = 0,
                  project = (SELECT s.project
                               FROM memories m
                               JOIN spaces s ON s.id = m.space_id
                              WHERE m.session_id = sessions.id
                           ORDER BY m.id
                              LIMIT 1)
            WHERE project = :project
                  AND EXISTS (SELECT 1 FROM memories WHERE session_id = sessions.id)""",
        project=project,
    )
    sessions = sql.run("DELETE FROM sessions WHERE project = :project", project=project)
    sql.run("DELETE FROM spaces WHERE project = :project", project=project)
    return sessions.rowcount


def _same_keys(tx: Transaction, project: Project, into: Project) -> list[tuple[MemoryId, MemoryId]]:
    """Return pairs of live memories of the two projects that share a scope and key."""
    at_key = tx[Sql].dialect.hint("memories_at_key")
    rows = tx[Sql].run(
        f"""SELECT m.id, n.id
              FROM ({SAME_SCOPES}) pairs
              JOIN memories m {at_key} ON m.space_id = source
              JOIN memories n {at_key} ON n.space_id = target AND n.key = m.key
             WHERE m.key IS NOT NULL AND {live("m")}
                   AND n.key IS NOT NULL AND {live("n")}
          ORDER BY m.id""",
        project=project, into=into,
    )  # fmt: skip
    return [(MemoryId(ours), MemoryId(theirs)) for ours, theirs in rows]


def _move(tx: Transaction, project: Project, into: Project) -> None:
    """Move all rows of a project into another one; the two must not share a key any more."""
    sql = tx[Sql]
    source, target = (sql.place_of(it) for it in (project, into))
    sessions = "SELECT session_id FROM memories WHERE space_id IN"
    affected = sql.column(  # memories that change their area, or whose sessions become longer
        f"""SELECT m.id
              FROM spaces s
              JOIN memories m {sql.dialect.hint("memories_in_space")} ON m.space_id = s.id
             WHERE {indexed("m")}
                   AND (s.area = :area
                        OR (s.project IN (:project, :into)
                            AND m.session_id IN (
                                {sessions} (SELECT id FROM spaces WHERE project = :project)
                                INTERSECT
                                {sessions} (SELECT id FROM spaces WHERE project = :into))))
          ORDER BY m.id""",
        project=project, into=into, area=source[0] if source and target else None,
    )  # fmt: skip
    with tx.index.moving(affected):
        for from_, to in sql.run(SAME_SCOPES, project=project, into=into).fetchall():
            for table in ("memories", "lifecycles"):
                move = f"UPDATE {table} SET space_id = :target WHERE space_id = :source"
                sql.run(move, source=from_, target=to)
            sql.run("DELETE FROM spaces WHERE id = :source", source=from_)
        if target is not None:  # the remaining spaces, whose scopes are new there, join its area
            sql.run(
                f"""UPDATE spaces
                       SET area = :area, partition = :partition
                     WHERE project = :project AND area <> {GLOBAL_AREA}""",
                area=target[0], partition=target[1], project=project,
            )  # fmt: skip
        _rename(sql, project, into)
    if source and target:
        tx.index.merge_area(*source)


def _rename(sql: Sql, project: Project, new: Project) -> None:
    for table in ("spaces", "sessions"):
        statement = f"UPDATE {table} SET project = :new WHERE project = :project"
        sql.run(statement, project=project, new=new)


_LIVE = f"SELECT count(*) FROM lifecycles JOIN memories m ON m.id = memory_id WHERE {live('m')}"
_ROWS = f"""
    SELECT (SELECT count(*) FROM memories),
           (SELECT count(*) FROM memories) + (SELECT count(*) FROM revisions)
             - (SELECT count(*) FROM (SELECT 1 FROM revisions GROUP BY memory_id) changed),
           (SELECT count(*) FROM sessions),
           (SELECT count(*) FROM sessions WHERE ended_at IS NULL),
           ({_LIVE} AND pinned_at IS NOT NULL),
           ({_LIVE} AND review_at <= :now),
           (SELECT count(*) FROM agent_memories WHERE tier = '{Tier.WORKING}'),
           (SELECT count(*) FROM agent_memories WHERE tier = '{Tier.EPISODIC}'),
           (SELECT count(*) FROM agent_memories WHERE tier = '{Tier.SEMANTIC}'),
           (SELECT count(*) FROM ref_entries),
           (SELECT count(*) FROM runs),
           (SELECT count(*) FROM runs WHERE ended_at IS NULL)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projects:
    """The projects of one service.

    A change needs the role admin and access to every named project, or to all projects if a
    named one has global memories; it raises Denied otherwise, and NotFound for an empty
    project. A change is audited first, and is not made if the audit fails.
    """

    engine: Engine
    audit: Audit
    on_erased: Callable[[Caller], None] = noop

    async def list(self, caller: Caller) -> list[Listed]:
        """Return the non-empty projects that the caller has access to, by name."""
        every = await self.engine.read(caller, names)
        return [await self.engine.read(caller, listed, name) for name in every]

    async def plan_rename(self, caller: Caller, project: Project, new: Project) -> Extent:
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_rename, project, new)

    async def rename(self, caller: Caller, project: Project, new: Project) -> Extent:
        plan = await self.plan_rename(caller, project, new)
        await self._record(caller, "project.renamed", project, plan, to=new)
        return await self.engine.write(caller, rename, project, new)

    async def plan_merge(self, caller: Caller, project: Project, into: Project) -> Extent:
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_merge, project, into)

    async def merge(self, caller: Caller, project: Project, into: Project) -> Extent:
        """Move everything of a project into another, non-empty one.

        If both have a live memory at the same key, the target's memory keeps or takes the text
        that was updated later; the other memory is soft-deleted with its revisions.
        """
        plan = await self.plan_merge(caller, project, into)
        about = {"into": into, "same_keys": plan.same_keys}
        await self._record(caller, "project.merged", project, plan, **about)
        return await self.engine.write(caller, merge, project, into)

    async def plan_erasure(self, caller: Caller, project: Project) -> Extent:
        """Plan `erase`, with the same errors; empty for a project that was erased before."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_erasure, project)

    async def erase(
        self, caller: Caller, project: Project, progress: Callable[[Erasure], None] = noop
    ) -> Erasure:
        """Erase a project in short transactions, including memories saved concurrently.

        Resumes an interrupted erasure. Returns the receipt; for an empty project that was
        erased before, the newest receipt.
        """
        if extent := await self.plan_erasure(caller, project):
            await self._record(caller, "project.erased", project, extent)
        begun = await self.engine.write(caller, begin_erasure, project)
        if not begun.is_in_progress:
            return begun
        while (erasure := await self.engine.write(caller, erase_some, begun.id)).is_in_progress:
            progress(erasure)
        self.on_erased(caller)
        return erasure

    async def _record(
        self, caller: Caller, action: str, project: Project, extent: Extent, **fields: object
    ) -> None:
        await audited(
            self.audit, caller, action, project=project, observations=extent.memories,
            revisions=extent.revisions, sessions=extent.sessions, **fields,
        )  # fmt: skip


def listed(tx: Transaction, project: Project) -> Listed:
    row = tx[Sql].run(
        f"""SELECT count(*), (SELECT count(*) FROM sessions WHERE project = :project),
                   max(m.updated_at)
              FROM memories m
             WHERE m.space_id IN {SPACES} AND {live("m")}""",
        project=project,
    )  # fmt: skip
    ((memories, sessions, at),) = row
    return Listed(project, memories, sessions, None if at is None else instant(at))


def extent_of(tx: Transaction, project: Project) -> Extent:
    memories = f"FROM memories m WHERE m.space_id IN {SPACES}"
    revisions = REVISIONS_OF.format(tx[Sql].dialect.greatest, "m.id")
    elsewhere = f"m.session_id = sessions.id AND m.space_id NOT IN {SPACES}"
    row = tx[Sql].run(
        f"""SELECT (SELECT count(*) {memories}),
                   (SELECT count(m.deleted_at) {memories}),
                   (SELECT coalesce(sum({revisions}), 0) {memories}),
                   (SELECT count(*) FROM sessions WHERE project = :project),
                   (SELECT count(*)
                      FROM sessions
                     WHERE project = :project
                           AND EXISTS (SELECT 1 FROM memories m WHERE {elsewhere}))""",
        project=project,
    )
    return Extent(*row.fetchall()[0])


def planned_rename(tx: Transaction, project: Project, new: Project) -> Extent:
    extent = _checked_extent(tx, project, new)
    if len(new) > MAX_PROJECT:
        raise Invalid(f"A project's name must have at most {MAX_PROJECT} characters.")
    if is_known_project(tx, new):
        raise Conflict("A project with the new name exists; merge the two instead.")
    refuse(faults_of({"project": new}))
    return extent


def rename(tx: Transaction, project: Project, new: Project) -> Extent:
    plan = planned_rename(tx, project, new)
    # Only spaces without memories can be left under the new name.
    tx[Sql].run("DELETE FROM spaces WHERE project = :new", new=new)
    _rename(tx[Sql], project, new)
    return plan


def planned_merge(tx: Transaction, project: Project, into: Project) -> Extent:
    extent = _checked_extent(tx, project, into)
    if not extent_of(tx, into):
        raise NotFound("No such project.")
    return extent._replace(same_keys=len(_same_keys(tx, project, into)))


def merge(tx: Transaction, project: Project, into: Project) -> Extent:
    plan = planned_merge(tx, project, into)
    for ours, theirs in _same_keys(tx, project, into):
        memory, holder = tx[MemoryTable].get(ours), tx[MemoryTable].get(theirs)
        assert memory is not None
        assert holder is not None
        merge_at_key(tx, holder, memory)
        revised(tx, memory, replace(memory, deleted_at=tx.now), ChangeKind.DELETED)
    # Release the keys that expired memories of both projects still hold.
    spaces = "(SELECT id FROM spaces WHERE project IN (:project, :into))"
    both: dict[str, object] = {"project": project, "into": into}
    tx[Sql].run(
        f"""UPDATE lifecycles
               SET held_key = (SELECT coalesce(key, held_key)
                                 FROM memories
                                WHERE id = memory_id)
             WHERE space_id IN {spaces} AND {ENDED}""",
        **both,
    )  # fmt: skip
    tx[Sql].run(
        f"""UPDATE memories
               SET key = NULL
             WHERE id IN (SELECT memory_id
                            FROM lifecycles
                           WHERE space_id IN {spaces} AND held_key IS NOT NULL)""",
        **both,
    )
    _move(tx, project, into)
    return plan


def planned_erasure(tx: Transaction, project: Project) -> Extent:
    _require_access(tx, project)
    extent = extent_of(tx, project)
    if not extent and tx[ReceiptTable].newest_of(project) is None:
        raise NotFound("No such project.")
    return extent


def begin_erasure(tx: Transaction, project: Project) -> Erasure:
    """Return the receipt of an unfinished erasure, of an empty project's last one, or a new one."""
    extent, newest = planned_erasure(tx, project), tx[ReceiptTable].newest_of(project)
    if newest is not None and (newest.is_in_progress or not extent):
        return newest
    return tx[ReceiptTable].add(ErasureKind.PROJECT, project, is_in_progress=True)


def erase_some(tx: Transaction, erasure: ErasureId) -> Erasure:
    # Unknown if the tenant was erased meanwhile.
    receipt = required(tx[ReceiptTable].get(erasure), "No such project.")
    if not receipt.is_in_progress:  # a concurrent request has completed the erasure
        return receipt
    _require_access(tx, receipt.project)
    if memories := _next_batch(tx, receipt.project):
        tx[ReceiptTable].extend(erasure, memories, tx[MemoryTable].erase_some(memories))
    else:
        tx[ReceiptTable].complete(erasure, _erase_sessions(tx, receipt.project))
        tx[IdempotencyTable].erase_answers()
    return required(tx[ReceiptTable].get(erasure), "No such project.")


def _checked_extent(tx: Transaction, project: Project, other: Project) -> Extent:
    """Return the extent of a project to rename or merge, after all checks of the request."""
    _require_access(tx, project, other)
    if project == other:
        raise Invalid("The two projects are the same.")
    extent = extent_of(tx, project)
    if not extent:
        raise NotFound("No such project.")
    erasures = map(tx[ReceiptTable].newest_of, (project, other))
    if any(erasure is not None and erasure.is_in_progress for erasure in erasures):
        raise Conflict("The project is being erased; finish erasing it first.")
    return extent


def _require_access(tx: Transaction, *projects: Project) -> None:
    for project in projects:
        if not project:
            raise Invalid("A project needs a name.")
        tx.caller.require_project(project)
    if tx.caller.projects.are_everything:
        return
    has_global = f"""SELECT 1
                       FROM spaces s
                      WHERE s.project = :project AND {GLOBAL} AND {HAS_MEMORIES}
                      LIMIT 1"""
    if any(tx[Sql].exists(has_global, project=project) for project in projects):
        raise Denied("Changing a project with global memories needs a key for every project.")
