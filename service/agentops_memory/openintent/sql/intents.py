"""SQL for intents, and for who takes part in them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...errors import Unreadable
from ...memory.model.agent_memory import Eyes
from ...memory.model.agents import AgentId
from ...memory.model.intents import (
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
from ...memory.sql.liveness import ENDED, IN_FORCE
from ...memory.sql.rows import (
    count,
    flag,
    instant,
    micros,
    optional_instant,
    optional_micros,
    reads,
)
from ...memory.sql.table import Table
from .tasks import details_of, unfinished

DETAILS_OF_INTENT: Mapping[str, Any] = {
    "title": "", "description": "", "state": {}, "constraints": {}, "parent_intent_id": None,
    "depends_on": [], "governance_policy": None,
}  # fmt: skip
DETAILS_OF_COORDINATOR: Mapping[str, Any] = {
    "role": "coordinator", "supervisor_id": None, "coordinator_type": "llm", "scope": "intent",
    "guardrails": None, "heartbeat_interval_seconds": 60, "metadata": {},
}  # fmt: skip

# Of a coordinator, as a permission; the first part is what an index says.
ACTIVE = f"NOT is_ended AND is_ended = FALSE AND {IN_FORCE}"
IS_OVER = f"(is_ended = TRUE OR {ENDED})"  # of a coordinator, as what restricts others
GRANTED = f"permission IN ({', '.join(repr(it.value) for it in Permission)}) AND {IN_FORCE}"
COORDINATOR = "id, intent, agent, is_ended, details, version, granted_at, expires_at"
GRANT = "id, intent, agent, permission, reason, granted_by, granted_at, expires_at"


@dataclass(eq=False)
class IntentTable(Table):
    """Intents, and who takes part in them."""

    _now: datetime

    def add(self, intent: Intent) -> None:
        """Insert an intent."""
        self._insert(
            "intents",
            id=intent.id,
            created_by=intent.created_by,
            details=intent.details,
            created_at=micros(intent.created_at),
        )

    def get(self, intent: IntentId) -> Intent | None:
        """The intent, whoever may see it."""
        return self._first(
            _intent,
            f"""SELECT {self._sql.row}, id, created_by, details, created_at
                  FROM intents
                 WHERE id = :id""",
            id=intent,
        )

    def standing(self, intent: IntentId, eyes: Eyes) -> Standing:
        """What an agent is to an intent; nothing to one that there is not."""
        row = self._execute(
            f"""SELECT created_by = :agent,
                       EXISTS (SELECT 1
                                 FROM coordinators
                                WHERE intent = :id AND agent = :agent AND {ACTIVE}),
                       EXISTS (SELECT 1 FROM tasks WHERE intent = :id AND agent = :agent),
                       EXISTS (SELECT 1
                                 FROM grants
                                WHERE intent = :id AND agent = :agent AND {GRANTED})
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
        """Whether it coordinates an intent in which another agent has an unfinished task."""
        return self._exists(
            f"""SELECT 1
                  FROM (SELECT intent FROM coordinators WHERE agent = :eyes AND {ACTIVE}) c
                  JOIN tasks t ON t.intent = c.intent
                 WHERE t.agent = :agent AND {unfinished("t")}""",
            eyes=eyes.agent,
            agent=agent,
            now=micros(self._now),
        )

    def add_coordinator(self, coordinator: Coordinator) -> None:
        """Insert a coordinator."""
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
        """The coordinator, ended or not."""
        return self._first(
            _coordinator,
            f"SELECT {self._sql.row}, {COORDINATOR} FROM coordinators WHERE id = :id",
            id=coordinator,
        )

    def coordinators(self, intent: IntentId) -> list[Coordinator]:
        """All that an intent has had, the first first."""
        rows = self._execute(
            f"""SELECT {self._sql.row}, {COORDINATOR}
                  FROM coordinators
                 WHERE intent = :intent
              ORDER BY granted_at, id""",
            intent=intent,
        )
        return list(self._intact(rows, _coordinator))

    def guardrails(self, intent: IntentId) -> list[Guardrails]:
        """What bounds the memory of an intent: of each who coordinates it now."""
        rows = self._execute(  # those too of which nobody can tell whether they are over
            f"""SELECT {self._sql.row}, {COORDINATOR}
                  FROM coordinators
                 WHERE intent = :intent AND NOT coalesce({IS_OVER}, FALSE)""",
            intent=intent,
            now=micros(self._now),
        )
        return [guardrails_of(_coordinator(row).details) for row in rows]

    def end_coordinator(self, coordinator: CoordinatorId) -> None:
        """Let it coordinate no more."""
        self._execute(
            "UPDATE coordinators SET is_ended = TRUE, version = version + 1 WHERE id = :id",
            id=coordinator,
        )

    def add_grant(self, grant: Grant) -> None:
        """Insert a grant."""
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
        """Those on an intent, the first first."""
        rows = self._execute(
            f"""SELECT {self._sql.row}, {GRANT}
                  FROM grants
                 WHERE intent = :intent
              ORDER BY granted_at, id""",
            intent=intent,
        )
        return list(self._intact(rows, _grant))

    def remove_grant(self, grant: GrantId) -> None:
        self._execute("DELETE FROM grants WHERE id = :id", id=grant)


@reads("intents")
def _intent(_: Any, id_: str, created_by: str, details: str, created_at: int) -> Intent:
    details_of(details, DETAILS_OF_INTENT)
    return Intent(
        id=IntentId(id_),
        created_by=AgentId(created_by),
        details=details,
        created_at=instant(created_at),
    )


@reads("coordinators")
def _coordinator(  # noqa: PLR0913, PLR0917 - its columns
    _: Any, id_: str, intent: str, agent: str, is_ended: bool, details: str,
    version: int, granted_at: int, expires_at: int | None,
) -> Coordinator:  # fmt: skip
    guardrails_of(details)
    return Coordinator(
        id=CoordinatorId(id_),
        intent=IntentId(intent),
        agent=AgentId(agent),
        is_ended=flag(is_ended),
        details=details,
        version=count(version),
        granted_at=instant(granted_at),
        expires_at=optional_instant(expires_at),
    )


@reads("grants")
def _grant(  # noqa: PLR0913, PLR0917 - its columns
    _: Any, id_: str, intent: str, agent: str, permission: str, reason: str | None,
    granted_by: str, granted_at: int, expires_at: int | None,
) -> Grant:  # fmt: skip
    return Grant(
        id=GrantId(id_),
        intent=IntentId(intent),
        agent=AgentId(agent),
        permission=Permission(permission),
        reason=reason,
        granted_by=AgentId(granted_by),
        granted_at=instant(granted_at),
        expires_at=optional_instant(expires_at),
    )


def guardrails_of(details: str) -> Guardrails:
    """What a coordinator's details say of memory; Unreadable if they are damaged."""
    given = details_of(details, DETAILS_OF_COORDINATOR)["guardrails"]
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise Unreadable
    most = [
        given.get(f"max_{which}")
        for which in ("working_memory_per_task", "episodic_memory_per_agent")
    ]
    allowed, denied = (given.get(f"{which}_semantic_namespaces") for which in ("allowed", "denied"))
    must_archive = given.get("memory_archive_required", False)
    are_sound = (
        all(it is None or (type(it) is int and it >= 0) for it in most)
        and all(it is None or _are_names(it) for it in (allowed, denied))
        and isinstance(must_archive, bool)
    )
    if not are_sound:
        raise Unreadable
    return Guardrails(
        most_working=most[0],
        most_episodic=most[1],
        allowed=None if allowed is None else tuple(allowed),
        denied=tuple(denied or ()),
        must_archive=must_archive,
    )


def _are_names(said: object) -> bool:
    return isinstance(said, list) and all(isinstance(name, str) for name in said)
