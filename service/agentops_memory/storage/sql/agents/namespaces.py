"""SQL for semantic namespaces: who may do what in each."""

from dataclasses import dataclass
from datetime import datetime

from ....domain.model.agent_memory import Access, Permissions
from ....domain.model.agents import AgentId
from ..rows import member, micros
from ..table import Table


@dataclass(eq=False)
class Namespaces(Table):
    """The namespaces of one transaction."""

    _now: datetime

    def permissions(self, namespace: str) -> Permissions:
        default = self._first(
            lambda row: _access(row[0]),
            "SELECT default_access FROM namespaces WHERE name = :name",
            name=namespace,
        )
        rows = self._execute(
            "SELECT agent, access FROM namespace_access WHERE namespace = :name ORDER BY agent",
            name=namespace,
        )
        allow = {AgentId(agent): _access(access) for agent, access in rows}
        return Permissions(default=Access.READ if default is None else default, allow=allow)

    def permit(self, namespace: str, permissions: Permissions) -> None:
        self._execute(
            """INSERT INTO namespaces (name, default_access, version, created_at, updated_at)
               VALUES (:name, :access, 1, :now, :now)
                   ON CONFLICT (name) DO UPDATE
                  SET default_access = :access, version = version + 1, updated_at = :now""",
            name=namespace,
            access=int(permissions.default),
            now=micros(self._now),
        )
        self._execute("DELETE FROM namespace_access WHERE namespace = :name", name=namespace)
        self._connection.executemany(
            """INSERT INTO namespace_access (namespace, agent, access)
               VALUES (:name, :agent, :access)""",
            [
                {"name": namespace, "agent": agent, "access": int(access)}
                for agent, access in permissions.allow.items()
            ],
        )


def _access(level: int) -> Access:
    """The access in a row; none if it is damaged."""
    return member(Access, level, Access.NONE)
