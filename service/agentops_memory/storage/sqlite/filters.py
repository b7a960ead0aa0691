"""A filter in SQL: the spaces that a read may see, and conditions on their memories."""

from dataclasses import dataclass

from ...domain.model import GLOBAL_SCOPE, Filter

_EVERYWHERE = "TRUE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """Conditions on the table `spaces s`, and further ones, each with its AND, on memories."""

    on_spaces: str
    on_memories: str

    @property
    def everywhere(self) -> bool:
        """Whether every space is in sight."""
        return self.on_spaces == _EVERYWHERE

    @property
    def spaces(self) -> str:
        """The ids of the spaces, as a subquery."""
        return f"(SELECT s.id FROM spaces s WHERE {self.on_spaces})"


def clauses(seen: Filter, *, memory: str) -> Clauses:
    """The conditions of a filter, for an alias of the table of memories."""
    on_memories = ""
    if seen.type is not None:
        on_memories += f" AND {memory}.type = :type"
    if seen.tag is not None:
        on_memories += f" AND EXISTS (SELECT 1 FROM json_each({memory}.tags) WHERE value = :tag)"
    return Clauses(on_spaces=_on_spaces(seen), on_memories=on_memories)


def parameters(seen: Filter) -> dict[str, object]:
    """The values that the conditions name."""
    return {"project": seen.project, "scope": seen.scope, "type": seen.type, "tag": seen.tag}


def _on_spaces(seen: Filter) -> str:
    if seen.scope == GLOBAL_SCOPE:
        return "s.scope = 'global'"
    conditions = []
    if seen.scope is not None:
        conditions.append("s.scope = :scope")
    if seen.project is not None:
        globals_too = seen.global_too and seen.scope is None
        own = "s.project = :project"
        conditions.append(f"({own} OR s.scope = 'global')" if globals_too else own)
    return " AND ".join(conditions) or _EVERYWHERE
