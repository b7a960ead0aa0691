"""The backup job: it makes archives of all databases, and removes old ones."""

import asyncio
import errno
import logging
import os
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ..operations.backup import (
    DAMAGED,
    LATE,
    KeptArchive,
    are_on_one_disk,
    make_archive,
    newest,
    path_in,
    prune,
)
from ..secrets.sanitizing import code_of, is_operational, sentence_of
from ..settings.settings import Settings
from ..telemetry import Metrics
from ..telemetry.measures import BACKUP_BYTES, BACKUP_INTERVAL, BACKUP_LAST_SUCCESS, BACKUPS
from .runner import background, log_failure, run_in_thread

LOOK = timedelta(minutes=1)  # between two looks at the folder; a start has enough to do
TIMEOUT = timedelta(minutes=15)  # after a failure, at most

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Backups:
    """The archives that a service makes by itself, and how it stands with them."""

    place: Settings
    folder: Path
    every: timedelta
    keep: int
    metrics: Metrics
    clock: Callable[[], datetime]
    _newest: KeptArchive | None = None
    _fault: str | None = None
    _try_again_at: float = 0.0

    @property
    def trouble(self) -> str | None:
        """What is wrong, in a sentence; none if there is an archive, and it is new enough."""
        if self._fault:
            return "The last backup failed; the log says why."
        if self._newest is None:
            return "There is no backup yet."
        if self.clock() - self._newest.made_at > LATE * self.every:
            return "The newest backup is too old."
        if self._newest.is_damaged:
            return DAMAGED
        return None

    async def begin(self) -> None:
        self.metrics.show(BACKUP_INTERVAL, self.every.total_seconds())
        try:
            await self._look()
            await run_in_thread(lambda _: _require_writable(self.folder))
            if await run_in_thread(lambda _: are_on_one_disk(self.folder, self.place.db_path)):
                self._warn("backups are on the same disk as the database and would be lost with it")
        except Exception as error:  # noqa: BLE001 - the next look at the folder may be better
            log_failure(log, "backups cannot be made now", error, folder=str(self.folder))

    async def keep_up(self) -> None:
        """Make an archive if one is due. What fails is tried again after a while."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._try_again_at:
            return
        try:
            await self._look()
            if self._newest is None or self.clock() - self._newest.made_at >= self.every:
                await self._make()
            self._fault = None
        except Exception as error:
            if not is_operational(error):
                log.exception("a backup failed unexpectedly")
            self._failed(error)

    async def _look(self) -> None:
        now = self.clock()
        self._newest = found = await run_in_thread(lambda _: newest(self.folder, now))
        self.metrics.show(BACKUP_LAST_SUCCESS, found.made_at.timestamp() if found else 0)
        self.metrics.show(BACKUP_BYTES, found.size if found else 0)

    async def _make(self) -> None:
        loop, now = asyncio.get_running_loop(), self.clock()
        began, target = loop.time(), path_in(self.folder, now)
        made = await run_in_thread(
            lambda go_on: make_archive(self.place, target, now=now, progress=go_on)
        )
        self.metrics.count(BACKUPS, "made")
        seconds = round(loop.time() - began, 3)
        extra = {"archive": str(made.path), "bytes": made.size, "seconds": seconds}
        log.info("backed up", extra=extra)
        if damaged := made.manifest.damaged:
            log.error("the backup has damaged values", extra={**extra, "values": list(damaged)})
        await self._prune()
        await self._look()

    async def _prune(self) -> None:
        now = self.clock()
        try:
            gone = await run_in_thread(lambda _: prune(self.folder, self.keep, now))
        except OSError as error:
            self._warn("old backups could not be removed", reason=sentence_of(error))
        else:
            if gone:
                names = [path.name for path in gone]
                log.info("old backups were removed", extra={"archives": names})

    def _failed(self, error: Exception) -> None:
        sentence = sentence_of(error)
        wait = min(self.every, TIMEOUT)
        self._try_again_at = asyncio.get_running_loop().time() + wait.total_seconds()
        self.metrics.count(BACKUPS, "failed")
        if self._fault is None or _without_figures(sentence) != _without_figures(self._fault):
            extra = {
                "reason": sentence,
                "code": code_of(error),
                "folder": str(self.folder),
                "again_in": str(wait),
            }
            log.error("the backup failed and will be retried", extra=extra)
        self._fault = sentence

    def _warn(self, sentence: str, **fields: str) -> None:
        log.warning(sentence, extra={"folder": str(self.folder), **fields})


def backing_up(backups: Backups) -> AbstractAsyncContextManager[None]:
    """Inside, an archive is made whenever the newest is older than the interval.

    What is half made at the end has no name, and is gone.
    """

    async def keep_up() -> None:
        await backups.begin()
        while True:
            await asyncio.sleep(LOOK.total_seconds())
            await backups.keep_up()

    return background(keep_up())


def _require_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "it cannot be written to", str(folder))


def _without_figures(sentence: str) -> str:
    return re.sub(r"(?<= )\d[\d,]*", "", sentence)
