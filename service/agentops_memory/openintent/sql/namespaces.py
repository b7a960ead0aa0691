"""SQL for semantic namespaces: which there are, and who may do what in each."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...memory.model.agent_memory import Access, Eyes, Namespace, Permissions
from ...memory.model.agents import AgentId
from ...memory.sql.liveness import live
from ...memory.sql.rows import count, instant, micros, reads
from ...memory.sql.table import Table
from .visibility import access_in, seen, sum_of

# There is a namespace while it has live entries, or permissions.
KNOWN = f"""(SELECT p.namespace AS name
               FROM agent_spaces p
              WHERE p.agent = ''
                    AND EXISTS (SELECT 1
                                  FROM memories m
                                 WHERE m.space_id = p.space_id AND {live("m")})
              UNION
             SELECT name FROM namespaces) k"""


@dataclass(eq=False)
class NamespaceTable(Table):
    """Semantic namespaces."""

    _now: datetime

    def page(self, eyes: Eyes, limit: int, offset: int) -> list[Namespace]:
        """Those that these eyes may read, by name."""
        return self._read("TRUE", eyes, limit=limit, offset=offset)

    def total(self, eyes: Eyes) -> int:
        """How many these eyes may read."""
        return self._number(
            f"SELECT count(*) FROM {KNOWN} WHERE {access_in('k.name')} >= {Access.READ:d}",
            **self._seen(eyes),
        )

    def get(self, namespace: str, eyes: Eyes) -> Namespace | None:
        """The namespace, if these eyes may read it and there is something of it."""
        found = self._read("k.name = :name", eyes, name=namespace, limit=1, offset=0)
        if not found:
            list(self._intact([namespace], self.permissions))  # damaged, it opens nothing
        return found[0] if found else None

    def permissions(self, namespace: str) -> Permissions:
        """Who may do what in a namespace; what holds for all where nothing was said of it."""
        default = self._first(
            _default,
            f"SELECT {self._sql.row}, default_access FROM namespaces WHERE name = :name",
            name=namespace,
        )
        rows = self._execute(
            f"""SELECT {self._sql.row}, agent, access
                  FROM namespace_access
                 WHERE namespace = :name
              ORDER BY agent""",
            name=namespace,
        )
        default = Access.READ if default is None else default
        return Permissions(default=default, allow=dict(map(_allowed, rows)))

    def permit(self, namespace: str, permissions: Permissions) -> None:
        """Say who may do what in a namespace."""
        self._execute(
            """INSERT INTO namespaces (name, default_access, version, created_at, updated_at)
               VALUES (:name, :access, 1, :now, :now)
                   ON CONFLICT (name) DO UPDATE
                  SET default_access = :access, version = namespaces.version + 1,
                      updated_at = :now""",
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

    def _read(self, which: str, eyes: Eyes, **values: object) -> list[Namespace]:
        rows = self._execute(
            f"""SELECT k.name, {access_in("k.name")} AS access,
                       max(v.version), max(v.created_at), max(v.updated_at),
                       count(m.id), {sum_of("a.size")}, min(m.created_at), max(m.updated_at)
                  FROM {KNOWN}
                  LEFT JOIN namespaces v ON v.name = k.name
                  LEFT JOIN agent_spaces p ON p.namespace = k.name AND p.agent = ''
                  LEFT JOIN memories m ON m.space_id = p.space_id AND {live("m")}
                  LEFT JOIN agent_memories a ON a.memory_id = m.id
                 WHERE {which} AND {access_in("k.name")} >= {Access.READ:d}
              GROUP BY k.name
              ORDER BY k.name
                 LIMIT :limit OFFSET :offset""",
            **values,
            **self._seen(eyes),
        )
        read = reads("namespaces")(self._namespace)
        return list(self._intact(rows.fetchall(), read))

    def _namespace(  # noqa: PLR0913, PLR0917 - its columns
        self, name: str, access: int, version: int | None, said_at: int | None,
        changed_at: int | None, entries: int, size: int, first: int | None, last: int | None,
    ) -> Namespace:  # fmt: skip
        return Namespace(
            name=name,
            permissions=self.permissions(name),
            access=Access(access),
            version=count(version or 0),
            entries=entries,
            size=count(size),
            created_at=instant(min(at for at in (said_at, first) if at is not None)),
            updated_at=instant(max(at for at in (changed_at, last) if at is not None)),
        )

    def _seen(self, eyes: Eyes) -> dict[str, object]:
        return {**seen(eyes), "now": micros(self._now)}


@reads("namespaces")
def _default(_: Any, access: int) -> Access:
    return Access(access)


@reads("namespace_access")
def _allowed(_: Any, agent: str, access: int) -> tuple[AgentId, Access]:
    return AgentId(agent), Access(access)
