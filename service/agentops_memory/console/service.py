"""View *Service*: whether it is well, what it holds and keeps, who has keys, what took long."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from ..http.middleware import READY
from ..memory.access import DEFAULT_TENANT, Role
from ..memory.erasure import ReceiptTable
from ..memory.keys import Key
from ..telemetry.metrics import SLOW
from .page import Visit

ERASURES = 20  # receipts in the list
# What an operator does about a check, at the terminal.
COMMANDS: Mapping[str, str] = {
    "database": "agentops-memory doctor",
    "migrations": "agentops-memory migrate",
    "index": "agentops-memory index",
    "backup": "agentops-memory backup --to FILE",
}
# What is removed, after how long: each with the setting that says so.
RETENTION = (
    ("Deleted memories", "keep_deleted", "after their deletion"),
    ("Expired memories", "keep_expired", "after their expiry"),
    ("Requests with an idempotency key", "keep_idempotency", "after the request"),
    ("Events of agents and runs", "keep_events", "after the event"),
    ("Receipts of erasures", "keep_receipts", "once the bytes are gone"),
    ("Lines of the audit file", "keep_audit", "after they were written"),
)


async def show(visit: Visit) -> Response:
    console, caller = visit.console, visit.caller
    sees_all = caller.role.includes(Role.ADMIN) and caller.projects.are_everything
    settings = console.settings
    is_operator = sees_all and caller.tenant == DEFAULT_TENANT  # others have files of their own
    twins = [READY, "/stats"]
    if is_operator and settings.metrics != "off":
        twins.append("/metrics")
    return await visit.page(
        "service.html", *twins,
        health=await console.readiness(), commands=COMMANDS, stats=await visit.memories.stats(),
        sizes=await console.maintenance.sizes(caller) if sees_all else None,
        counts=await console.maintenance.count(caller) if sees_all else None,
        settings=settings, is_on_postgresql=bool(settings.database_url), sees_all=sees_all,
        sees_path=is_operator and not settings.database_url,
        retention=[
            (what, f"MEMORY_{name.upper()}", _period(getattr(settings, name)), since)
            for what, name, since in RETENTION
        ],
        backup_every=_period(settings.backup_every),
        erasures=await visit.read(lambda tx: tx[ReceiptTable].newest(ERASURES)) if sees_all else [],
        keys=_keys(visit) if sees_all else [],
        slow=[
            (datetime.fromtimestamp(it.at, UTC), it)
            for it in reversed(console.metrics.slow)
            if it.tenant == caller.tenant
        ] if sees_all else [],
        slow_from=round(SLOW * 1000),
    )  # fmt: skip


def _keys(visit: Visit) -> list[tuple[Key, bool, datetime | None]]:
    """The keys of the caller's tenant, whether they work, and when each was last used."""
    console, now = visit.console, visit.console.clock()
    lines = [
        (key, not key.revoked_at and any(it.works_at(now) for it in key.secrets),
         console.used.get(key.id))
        for key in console.keys().keys.values() if key.tenant == visit.caller.tenant
    ]  # fmt: skip
    return sorted(lines, key=lambda line: (not line[1], line[0].name, line[0].id))


def _period(time: timedelta) -> str:
    if not time:
        return "never"
    for unit in ("days", "hours", "minutes"):
        length = timedelta(**{unit: 1})
        if not time % length:
            count = time // length
            return f"{count} {unit if count > 1 else unit[:-1]}"
    return f"{time.total_seconds():g} seconds"
