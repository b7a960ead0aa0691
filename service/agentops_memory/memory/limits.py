"""Limits: a tenant's quota, what a new name may contain, access to stores."""

from collections.abc import Collection, Mapping

from ..engine.engine import Transaction
from ..errors import InvalidFields, NotFound, OverQuota
from ..recall.text.visible import invisible
from .model.access import ANY
from .model.space import Project, StoreId
from .model.table import Sql

NO_STORE = "No such memory store."
QUOTA_MARGIN = 16 * 1024 * 1024  # bytes past the quota, for what is small and must continue


def require_room(tx: Transaction, size: int = 0) -> None:
    """Refuse with OverQuota unless more than `size` bytes of the quota are left."""
    if tx.room is not None and tx.room <= size:
        raise OverQuota("The tenant has reached its storage quota; nothing was stored.")


def require_margin(tx: Transaction) -> None:
    """The same for a session or an idempotency record, which may exceed the quota a little.

    Without a session an agent's messages are lost; and what makes room needs its record.
    """
    require_room(tx, -QUOTA_MARGIN)


def faults_of(names: Mapping[str, str]) -> dict[str, str]:
    """By field, what keeps a text from being a new name.

    A project whose name is a pattern could be taken for all that match it.
    """
    found = ((field, invisible(name)) for field, name in names.items())
    faults = {field: f"has the invisible character {sign}" for field, sign in found if sign}
    if ANY in names.get("project", ""):
        faults["project"] = f"has a {ANY}, as key patterns have"
    return faults


def named_tags(tags: Collection[str]) -> dict[str, str]:
    return {f"tags[{place}]": tag for place, tag in enumerate(tags)}


def refuse(faults: Mapping[str, str], known: Collection[str] = ()) -> None:
    """InvalidFields for the faults, but for those of names that are known already."""
    named = [f"{field} {fault}" for field, fault in faults.items() if field not in known]
    if named:
        raise InvalidFields(f"validation failed: {'; '.join(named)}")


def is_known_project(tx: Transaction, project: Project) -> bool:
    """Whether a project has sessions or memories, live or deleted."""
    return tx[Sql].exists(
        """SELECT 1 FROM sessions WHERE project = :project
            UNION ALL
           SELECT 1
             FROM spaces s
            WHERE s.project = :project
                  AND EXISTS (SELECT 1 FROM memories WHERE space_id = s.id)
            LIMIT 1""",
        project=project,
    )


def require_store(tx: Transaction, store: StoreId) -> None:
    """Refuse callers who may not read stores with Denied, and an unknown one with NotFound."""
    tx.caller.require_stores()
    known = "SELECT 1 FROM stores WHERE uid = :uid AND erasure_id IS NULL"
    if not tx[Sql].exists(known, uid=store):
        raise NotFound(NO_STORE)
