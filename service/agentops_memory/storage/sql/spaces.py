"""SQL for spaces: the rows of projects' scopes and of stores, each with its area of the index."""

from typing import Any

from ...domain.model.space import Space
from .index import Index
from .table import Connection, Dialect, Table


class Spaces(Table):
    """The spaces of one transaction."""

    def __init__(self, connection: Connection, dialect: Dialect, index: Index) -> None:
        super().__init__(connection, dialect)
        self._index = index
        self._known: dict[Space, tuple[int, int]] = {}

    def placed(self, space: Space) -> tuple[int, int]:
        """The space's id and its area of the index; made with a project's first memory."""
        if space not in self._known:
            id_, area = self._find(space) or self.add(space)
            self._index.prepare(area)
            self._known[space] = id_, area
        return self._known[space]

    def add(self, space: Space) -> tuple[int, int]:
        """Make a space; its id and its area of the index."""
        area, partition = self._index.place(space)
        id_ = self._inserted(
            """INSERT INTO spaces (project, scope, area, partition)
               VALUES (:project, :scope, :area, :partition)""",
            area=area,
            partition=partition,
            **names_of(space),
        )
        return id_, area

    def _find(self, space: Space) -> Any:
        of_store = "s.id = (SELECT space_id FROM stores WHERE uid = :scope)"
        condition = of_store if space.is_store else named(space)
        return self._execute(
            f"SELECT s.id, s.area FROM spaces s WHERE {condition}", **names_of(space)
        ).fetchone()


def named(space: Space) -> str:
    """The condition that `spaces s` is this space; one of a store has no project."""
    project = "s.project IS NULL" if space.is_store else "s.project = :project"
    return f"{project} AND s.scope = :scope"


def names_of(space: Space) -> dict[str, object]:
    """The values that `named` names."""
    return {"project": space.project or None, "scope": space.scope}
