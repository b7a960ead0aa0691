"""A filter in SQL: the spaces that a read may see, and conditions on their memories."""

import json
from dataclasses import dataclass

from ....domain.model.access import Patterns
from ....domain.model.search import Filter
from ....domain.model.space import GLOBAL_SCOPE

EVERYWHERE = "TRUE"
OF_A_PROJECT = "s.project IS NOT NULL"
OF_A_STORE = "s.id = (SELECT space_id FROM stores WHERE uid = :store AND erasure_id IS NULL)"
GLOBAL = f"s.scope = '{GLOBAL_SCOPE}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """Conditions on the table `spaces s`, and further ones, each with its AND, on memories."""

    on_spaces: str
    on_memories: str

    @property
    def everywhere(self) -> bool:
        """Whether every project's spaces are in sight."""
        return self.on_spaces == OF_A_PROJECT

    @property
    def spaces(self) -> str:
        """The ids of the spaces, as a subquery."""
        return f"(SELECT s.id FROM spaces s WHERE {self.on_spaces})"


def clauses(seen: Filter, projects: Patterns, *, memory: str) -> Clauses:
    """The conditions of a filter, for a caller and an alias of the table of memories."""
    on_memories = ""
    if seen.type is not None:
        on_memories += f" AND {memory}.type = :type"
    if seen.tag is not None:
        # Tags that are no JSON, in a file that is damaged, would be an error.
        tags = f"CASE WHEN json_valid({memory}.tags) THEN {memory}.tags ELSE '[]' END"
        on_memories += f" AND EXISTS (SELECT 1 FROM json_each({tags}) WHERE value = :tag)"
    return Clauses(on_spaces=_on_spaces(seen, projects), on_memories=on_memories)


def parameters(seen: Filter, projects: Patterns) -> dict[str, object]:
    """The values that the conditions name."""
    given = {
        "project": seen.project,
        "scope": seen.scope,
        "store": seen.store,
        "type": seen.type,
        "tag": seen.tag,
    }
    return given | acting(projects)


def acted_on(projects: Patterns, column: str) -> str:
    """Whether the caller acts on the project in a column."""
    if projects.are_everything:
        return EVERYWHERE
    return f"acted_on(:patterns, CAST({column} AS BLOB))"


def acting(projects: Patterns) -> dict[str, object]:
    """The value that `acted_on` names."""
    return {} if projects.are_everything else {"patterns": json.dumps(projects.names)}


def _on_spaces(seen: Filter, projects: Patterns) -> str:
    if seen.store is not None:
        return OF_A_STORE
    if seen.scope == GLOBAL_SCOPE:
        return GLOBAL
    conditions = []
    if seen.project is not None:
        conditions.append("s.project = :project")
    if not projects.are_everything:
        conditions.append(acted_on(projects, "s.project"))
    own = " AND ".join(conditions) or OF_A_PROJECT
    if seen.scope is not None:
        return f"s.scope = :scope AND {own}"
    return f"({own} OR {GLOBAL})" if seen.global_too and conditions else own
