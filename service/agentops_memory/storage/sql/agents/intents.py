"""SQL for intents, and for who takes part in them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ....domain.model.agent_memory import Eyes
from ....domain.model.agents import AgentId
from ....domain.model.intents import (
    Coordinator,
    CoordinatorId,
    Grant,
    GrantId,
    Guardrails,
    Intent,
    IntentId,
    Permission,
    Standing,
)
from ..liveness import IN_FORCE
from ..rows import (
    count,
    instant,
    member,
    micros,
    optional_count,
    optional_instant,
    optional_micros,
    parsed,
)
from ..table import Table
from .tasks import FINISHED

ACTIVE = f"NOT is_ended AND {IN_FORCE}"  # of a coordinator
COORDINATOR = "id, intent, agent, is_ended, details, version, granted_at, expires_at"
GRANT = "id, intent, agent, permission, reason, granted_by, granted_at, expires_at"


@dataclass(eq=False)
class Intents(Table):
    """The intents of one transaction."""

    _now: datetime

    def add(self, intent: Intent) -> None:
        self._insert(
            "intents",
            id=intent.id,
            created_by=intent.created_by,
            details=intent.details,
            created_at=micros(intent.created_at),
        )

    def get(self, intent: IntentId) -> Intent | None:
        return self._first(
            _intent,
            "SELECT id, created_by, details, created_at FROM intents WHERE id = :id",
            id=intent,
        )

    def standing(self, intent: IntentId, eyes: Eyes) -> Standing:
        row = self._execute(
            f"""SELECT created_by = :agent,
                       EXISTS (SELECT 1
                                 FROM coordinators
                                WHERE intent = :id AND agent = :agent AND {ACTIVE}),
                       EXISTS (SELECT 1 FROM tasks WHERE intent = :id AND agent = :agent),
                       EXISTS (SELECT 1
                                 FROM grants
                                WHERE intent = :id AND agent = :agent AND {IN_FORCE})
                  FROM intents
                 WHERE id = :id""",
            id=intent,
            agent=eyes.agent,
            now=micros(self._now),
        ).fetchone()
        if row is None:
            return Standing()
        is_creator, is_coordinator, is_assigned, is_grantee = map(bool, row)
        return Standing(
            is_creator=is_creator,
            is_coordinator=is_coordinator,
            is_assigned=is_assigned,
            is_grantee=is_grantee,
            is_admin=eyes.is_admin,
        )

    def coordinates(self, eyes: Eyes, agent: AgentId) -> bool:
        return self._exists(
            f"""SELECT 1
                  FROM (SELECT intent FROM coordinators WHERE agent = :eyes AND {ACTIVE}) c
                  JOIN tasks t ON t.intent = c.intent
                 WHERE t.agent = :agent AND NOT t.{FINISHED}""",
            eyes=eyes.agent,
            agent=agent,
            now=micros(self._now),
        )

    def add_coordinator(self, coordinator: Coordinator) -> None:
        self._insert(
            "coordinators",
            id=coordinator.id,
            intent=coordinator.intent,
            agent=coordinator.agent,
            is_ended=coordinator.is_ended,
            details=coordinator.details,
            version=coordinator.version,
            granted_at=micros(coordinator.granted_at),
            expires_at=optional_micros(coordinator.expires_at),
        )

    def coordinator(self, coordinator: CoordinatorId) -> Coordinator | None:
        return self._first(
            _coordinator, f"SELECT {COORDINATOR} FROM coordinators WHERE id = :id", id=coordinator
        )

    def coordinators(self, intent: IntentId) -> list[Coordinator]:
        rows = self._execute(
            f"""SELECT {COORDINATOR}
                  FROM coordinators
                 WHERE intent = :intent
              ORDER BY granted_at, id""",
            intent=intent,
        )
        return list(map(_coordinator, rows))

    def guardrails(self, intent: IntentId) -> list[Guardrails]:
        details = self._scalars(
            f"SELECT details FROM coordinators WHERE intent = :intent AND {ACTIVE}",
            intent=intent,
            now=micros(self._now),
        )
        return list(map(_guardrails, details))

    def end_coordinator(self, coordinator: CoordinatorId) -> None:
        self._execute(
            "UPDATE coordinators SET is_ended = TRUE, version = version + 1 WHERE id = :id",
            id=coordinator,
        )

    def add_grant(self, grant: Grant) -> None:
        self._insert(
            "grants",
            id=grant.id,
            intent=grant.intent,
            agent=grant.agent,
            permission=grant.permission.value,
            reason=grant.reason,
            granted_by=grant.granted_by,
            granted_at=micros(grant.granted_at),
            expires_at=optional_micros(grant.expires_at),
        )

    def grants(self, intent: IntentId) -> list[Grant]:
        rows = self._execute(
            f"SELECT {GRANT} FROM grants WHERE intent = :intent ORDER BY granted_at, id",
            intent=intent,
        )
        return list(map(_grant, rows))

    def remove_grant(self, grant: GrantId) -> None:
        self._execute("DELETE FROM grants WHERE id = :id", id=grant)


def _intent(row: Any) -> Intent:
    id_, created_by, details, created_at = row
    return Intent(
        id=IntentId(id_),
        created_by=AgentId(created_by),
        details=details,
        created_at=instant(created_at),
    )


def _coordinator(row: Any) -> Coordinator:
    id_, intent, agent, is_ended, details, version, granted_at, expires_at = row
    return Coordinator(
        id=CoordinatorId(id_),
        intent=IntentId(intent),
        agent=AgentId(agent),
        is_ended=bool(is_ended),
        details=details,
        version=count(version),
        granted_at=instant(granted_at),
        expires_at=optional_instant(expires_at),
    )


def _grant(row: Any) -> Grant:
    id_, intent, agent, permission, reason, granted_by, granted_at, expires_at = row
    return Grant(
        id=GrantId(id_),
        intent=IntentId(intent),
        agent=AgentId(agent),
        permission=member(Permission, permission, Permission.READ),
        reason=reason,
        granted_by=AgentId(granted_by),
        granted_at=instant(granted_at),
        expires_at=optional_instant(expires_at),
    )


def _guardrails(details: str) -> Guardrails:
    """What is said of memory in what was sent; what is damaged bounds nothing."""
    said = parsed(details, dict).get("guardrails")
    if not isinstance(said, dict):
        return Guardrails()
    allowed, denied = (
        _names(said.get(f"{which}_semantic_namespaces")) for which in ("allowed", "denied")
    )
    return Guardrails(
        most_working=optional_count(said.get("max_working_memory_per_task")),
        most_episodic=optional_count(said.get("max_episodic_memory_per_agent")),
        allowed=allowed,
        denied=denied or (),
        must_archive=said.get("memory_archive_required") is True,
    )


def _names(said: object) -> tuple[str, ...] | None:
    if not isinstance(said, list):
        return None
    return tuple(name for name in said if isinstance(name, str))
