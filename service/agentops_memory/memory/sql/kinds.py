"""The SQL of the kinds of spaces: every condition that asks for a trait stands here."""

from collections.abc import Callable
from typing import Any

from ...errors import DamagedRow
from ..model.kinds import TRAITS, SpaceKind, Traits, is_partition
from ..model.space import Space

GLOBAL_AREA = 0  # of the index: of the global memories of every project
UNINDEXED_AREA = -1  # of spaces that are not in it
LAST_AREA = (1 << 22) - 1  # above it, no row number of the index is left


def of_kinds(trait: Callable[[Traits], bool]) -> str:
    """The condition that `spaces s` is of a kind with the trait."""
    kinds = ", ".join(f"'{kind}'" for kind, traits in TRAITS.items() if trait(traits))
    return f"s.kind IN ({kinds})"


OF_A_PROJECT = of_kinds(lambda kind: kind.has_sessions)

# What a row says that has a project, or none, and no kind: erasures, and spaces of older formats.
HAS_NO_PROJECT = "project IS NULL"
NEAREST_KIND = f"CASE WHEN {HAS_NO_PROJECT} THEN '{SpaceKind.STORE}' ELSE '{SpaceKind.PROJECT}' END"


# A memory has a session if the kind of its space has sessions. That is asked of the memory, as the
# partial indexes `memories_in_time` and `memories_in_store` do: SQLite reads along one of them only
# for a statement that says the same.


def in_a_session(memories: str) -> str:
    """The condition that memories, under an alias or the name of their table, have a session."""
    return f"{memories}.session_id IS NOT NULL"


def in_no_session(memories: str) -> str:
    """The condition that memories, under an alias or the name of their table, have none."""
    return f"{memories}.session_id IS NULL"


def kind_of(kind: str, project: str | None) -> SpaceKind:
    """The kind by which a space is indexed; any for a damaged one, which is not served."""
    return _KINDS.get(kind) or (SpaceKind.STORE if project is None else SpaceKind.PROJECT)


_KINDS = {kind.value: kind for kind in SpaceKind}


def project_or_this(project: str | None) -> str:
    """What a sentence is about; a project without its name, which may be damaged too."""
    return "This project" if project else "This"


def require_place(
    space: int, area: object, partition: object, project: str | None, *, is_global: bool = False
) -> None:
    """DamagedRow unless a space's row says where in the index its words are.

    In another project's place they would be found by those who may not read them.
    """
    what = project_or_this(project)
    is_area = type(area) is int and UNINDEXED_AREA <= area <= LAST_AREA
    if not is_area or (area == GLOBAL_AREA) is not is_global:
        raise DamagedRow("spaces", space, "area", what)
    if area not in (GLOBAL_AREA, UNINDEXED_AREA) and not is_partition(partition):
        raise DamagedRow("spaces", space, "partition", what)


def place_of(connection: Any, project: str) -> tuple[int, int] | None:
    """The area and the partition of a project's own memories, if it ever had one."""
    row = connection.execute(
        f"""SELECT id, area, partition
              FROM spaces
             WHERE project = :project AND area <> {GLOBAL_AREA}
             LIMIT 1""",
        {"project": project},
    ).fetchone()
    if row is None:
        return None
    space, area, partition = row
    require_place(space, area, partition, project)
    return area, partition


def named(space: Space) -> str:
    """The condition that `spaces s` is this space."""
    project = "s.project = :project" if space.traits.has_project else f"s.{HAS_NO_PROJECT}"
    return f"{project} AND s.scope = :scope"


def names_of(space: Space) -> dict[str, object]:
    """The values that `named` names."""
    return {"project": space.project or None, "scope": space.scope}
