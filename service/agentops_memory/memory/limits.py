"""Limits on what is stored: the quota of a tenant, and what a new name may hold."""

from collections.abc import Collection, Mapping

from ..engine.engine import Transaction
from ..errors import InvalidFields, OverQuota
from ..recall.text.visible import invisible
from .model.access import ANY
from .model.memory import Draft, SessionId
from .model.space import Project
from .sql.memories import MemoryTable
from .sql.projects import ProjectTable
from .sql.sessions import SessionTable

QUOTA_MARGIN = 16 * 1024 * 1024  # bytes past the quota, for what is small and must go on

Faults = Mapping[str, str]
"""By field, what keeps a text from being a new name."""


def require_room(tx: Transaction, size: int = 0) -> None:
    """Refuse with OverQuota unless more than `size` bytes of the quota are left."""
    if tx.room is not None and tx.room <= size:
        raise OverQuota("The tenant stores as much as it may; nothing was stored.")


def require_margin(tx: Transaction) -> None:
    """The same for a session or an idempotency record, which may exceed the quota a little.

    Without a session an agent's messages are lost; and what makes room needs its record.
    """
    require_room(tx, -QUOTA_MARGIN)


def require_session(tx: Transaction, session: SessionId, project: Project) -> None:
    """Refuse with InvalidFields a session that is new, by a name that cannot be."""
    faults = _faults({"id": session, "project": project}) | _pattern(project)
    if faults and tx[SessionTable].get(session) is None:
        _refuse(faults, known={"project"} if tx[ProjectTable].exists(project) else ())


def require_draft(tx: Transaction, draft: Draft) -> None:
    """Refuse with InvalidFields the names of a draft that nothing has yet and that cannot be."""
    project, tags = draft.space.project, _tags(draft.text.tags)
    names = {"session_id": draft.session, "project": project, **tags, "topic_key": draft.key or ""}
    faults = _faults(names) | _pattern(project)
    if faults:
        _refuse(faults, known=_known(tx, draft, tags))


def require_tags(tags: Collection[str], held: Collection[str]) -> None:
    """Refuse with InvalidFields tags that cannot be, unless the memory holds them."""
    names = _tags(tags)
    _refuse(_faults(names), known={field for field, tag in names.items() if tag in held})


def require_project(project: Project) -> None:
    """Refuse with InvalidFields a new project, by a name that cannot be."""
    _refuse(_faults({"project": project}) | _pattern(project))


def _faults(names: Mapping[str, str]) -> dict[str, str]:
    found = ((field, invisible(name)) for field, name in names.items())
    return {field: f"has the invisible character {sign}" for field, sign in found if sign}


def _pattern(project: Project) -> dict[str, str]:
    """A project whose name is a pattern could be taken for all that match it."""
    return {"project": f"has a {ANY}, as key patterns have"} if ANY in project else {}


def _tags(tags: Collection[str]) -> dict[str, str]:
    return {f"tags[{place}]": tag for place, tag in enumerate(tags)}


def _known(tx: Transaction, draft: Draft, tags: Mapping[str, str]) -> set[str]:
    known = set()
    if tx[SessionTable].get(draft.session) is not None:
        known.add("session_id")
    if tx[ProjectTable].exists(draft.space.project):
        known.add("project")
    if draft.key is not None and (held := tx[MemoryTable].at_key(draft.space, draft.key)):
        known |= {"topic_key", *(field for field, tag in tags.items() if tag in held.text.tags)}
    return known


def _refuse(faults: Faults, known: Collection[str] = ()) -> None:
    named = [f"{field} {fault}" for field, fault in faults.items() if field not in known]
    if named:
        raise InvalidFields(f"validation failed: {'; '.join(named)}")
