"""What probes are told: whether the process answers, has started, and can do its work."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...agentops.answers import Health
from ...engine.engine import Storage
from ...errors import Refusal
from ...memory.model.access import OPERATOR
from ...telemetry import Metrics
from ...telemetry.measures import DAMAGED_ROWS, INDEX_DRIFT
from ..protocol import Handler, Operation

HEALTH, LIVE, READY, STARTUP = "/health", "/health/live", "/health/ready", "/health/startup"

LITTLE = 100 * 2**20  # bytes left on the disk, below which somebody should look
NOTHING = 2**20  # below which a large write fails
LONG = 128 * 2**20  # bytes of a write-ahead log; it begins again long before, unless it is held
TIMEOUT = timedelta(seconds=3)  # with a write; a probe waits for five seconds
TOLD_FOR = timedelta(seconds=2)  # until it is looked again, however often it is asked

DRIFTED = "The index was out of line with the memories at the last look, and was built anew."
LOG_IS_LONG = (
    "The write-ahead log is long; a read or another process keeps it from beginning again."
)
DAMAGED = "Rows in the database are damaged, first {}; `agentops-memory doctor` names them."
DATABASE = "database"
MIGRATIONS = "migrations"


class Status(StrEnum):
    """How a check ended. With `failed` the service cannot do its work."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Check(BaseModel):
    """What a look at one thing found."""

    status: Status = Status.OK
    detail: str | None = None  # a sentence, unless all is well
    bytes: int | None = None
    rows: int | None = None


ALONE = Check(
    status=Status.WARNING,
    detail="No synchronous standby is named (synchronous_standby_names), so what was acknowledged "
    "can be lost with the database's machine.",
)


class Readiness(BaseModel):
    """GET /health/ready."""

    status: Status
    error: str | None = None  # what failed first, in a sentence
    checks: dict[str, Check]


@dataclass(slots=True, kw_only=True)
class Probes:
    """The operations that probes ask, of a service that has started."""

    storage: Storage
    metrics: Metrics
    backup_trouble: Callable[[], str | None] | None = None  # None: it makes no backups
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _found: Readiness | None = None
    _look_again_at: float = 0.0

    @property
    def operations(self) -> list[Operation]:
        async def ok(_: Request) -> Response:
            return well()

        async def ready(_: Request) -> Response:
            return _answered(await self.readiness())

        checked = "Whether the service can do its work, and what was looked at for that."
        rows: list[tuple[str, str, str, Handler, type[BaseModel]]] = [
            (HEALTH, "health", "Whether the service runs.", ok, Health),
            (LIVE, "live", "Whether the process answers.", ok, Health),
            (STARTUP, "startup", "Whether the service has started.", ok, Health),
            (READY, "ready", checked, ready, Readiness),
        ]
        return [
            Operation(
                method="GET", path=path, name=name, summary=summary, handler=handler,
                answer=answer, refusals=(503,),
            )
            for path, name, summary, handler, answer in rows
        ]  # fmt: skip

    async def readiness(self) -> Readiness:
        """How each check ended, at most two seconds ago."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if self._found is None or now >= self._look_again_at:
                self._found = _readiness(await self._looked())
                now = asyncio.get_running_loop().time()
                self._look_again_at = now + TOLD_FOR.total_seconds()
            return self._found

    async def _looked(self) -> dict[str, Check]:
        checks = await self._written()
        if self.storage.maintenance.has_files:
            checks |= await self._files()
        drift = int(self.metrics.shown(INDEX_DRIFT))
        checks["index"] = _warned(DRIFTED if drift else None, rows=drift)
        if self.backup_trouble:
            checks["backup"] = _warned(self.backup_trouble())
        return checks

    async def _written(self) -> dict[str, Check]:
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                found = await self.storage.probe()
        except TimeoutError:
            reason = f"A write took more than {TIMEOUT.total_seconds():.0f} s."
        except Refusal as refusal:
            reason = str(refusal)
        else:
            migrations = Check()
            if not found.has_newest_format:
                changed = "Another version of the program has changed the database."
                migrations = Check(status=Status.FAILED, detail=changed)
            standby = {"standby": ALONE} if found.lacks_standby else {}
            return {DATABASE: self._rows(found.damaged_rows), MIGRATIONS: migrations, **standby}
        return {DATABASE: Check(status=Status.FAILED, detail=reason), MIGRATIONS: Check()}

    def _rows(self, damaged: Sequence[str]) -> Check:
        self.metrics.show(DAMAGED_ROWS, len(damaged))
        if not damaged:
            return Check()
        # A warning: all else is served as ever, and a failed check would take the service away.
        # What names a row in a table is never a name of the user's: nobody needs a key for this.
        return _warned(DAMAGED.format(damaged[0]), rows=len(damaged))

    async def _files(self) -> dict[str, Check]:
        sizes = await self.storage.maintenance.sizes(OPERATOR)
        log = sizes.log or 0
        return {
            "disk": _disk(sizes.free),
            "wal": _warned(LOG_IS_LONG if log >= LONG else None, bytes=log),
        }


def _disk(free: int | None) -> Check:
    if free is None:
        return Check(status=Status.FAILED, detail="Nobody can tell how much space is left.")
    if free < NOTHING:
        return Check(status=Status.FAILED, detail="The disk is full.", bytes=free)
    if free < LITTLE:
        return Check(status=Status.WARNING, detail="The disk is nearly full.", bytes=free)
    return Check(bytes=free)


def _warned(trouble: str | None, **counted: int) -> Check:
    return Check(status=Status.WARNING if trouble else Status.OK, detail=trouble, **counted)


def _readiness(checks: dict[str, Check]) -> Readiness:
    for status in (Status.FAILED, Status.WARNING):
        details = [check.detail for check in checks.values() if check.status is status]
        if details:
            error = details[0] if status is Status.FAILED else None
            return Readiness(status=status, error=error, checks=checks)
    return Readiness(status=Status.OK, checks=checks)


def _answered(found: Readiness) -> Response:
    status = 503 if found.status is Status.FAILED else 200
    return JSONResponse(found.model_dump(mode="json", exclude_none=True), status)


def well() -> Response:
    return JSONResponse({"status": "ok"})


def _refused(sentence: str) -> Response:
    return JSONResponse({"error": sentence}, 503)


def _unready(what: str, detail: str) -> Response:
    return _answered(_readiness({what: Check(status=Status.FAILED, detail=detail)}))


_OPENING = "The database is being opened, or brought up to date."
_STOPPING = "The service is stopping."

Told = Mapping[str, Callable[[], Response]]
"""What probes are told, by their path."""

AS_USUAL: Told = {}
"""Of probes that the service itself answers."""

WHILE_STARTING: Told = {
    # An upgrade may take long, and a probe of the original's chart must not end it half-way.
    HEALTH: well,
    LIVE: well,
    STARTUP: partial(_refused, "The service is starting."),
    READY: partial(_unready, MIGRATIONS, _OPENING),
}
"""What probes are told before the database is open."""


def while_waiting(reason: str) -> Told:
    told = {STARTUP: partial(_refused, reason), READY: partial(_unready, DATABASE, reason)}
    return {**WHILE_STARTING, **told}


WHILE_STOPPING: Told = {
    HEALTH: partial(_refused, _STOPPING),
    READY: partial(_unready, "service", _STOPPING),
}
"""What probes are told once the service was asked to end."""
