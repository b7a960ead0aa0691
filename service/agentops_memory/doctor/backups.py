"""What the folder is found to be in which the service makes backups by itself."""

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from ..backup.schedule import newest
from ..domain.model.findings import Finding, ok, warn
from ..jobs.backups import DAMAGED, LATE, are_on_one_disk
from ..settings.settings import Settings

AWAY = "Mount it, and give it to the user of the service, which then makes a backup by itself."
LOG = "If a service runs, its log says why: look there for `no backup`."

_warn = partial(warn, "backup")


def check_backups(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Whether backups are made, are new enough, and would outlive the disk of the database."""
    folder = settings.backup_dir
    if folder is None or not settings.backup_every:
        yield ok("backup", "The service makes none by itself.")
        return
    try:
        yield _check_newest(folder, settings.backup_every, now)
        if are_on_one_disk(folder, settings.db_path):
            yield _warn(
                f"{folder} is on the disk of the database, and is lost with it.",
                "Mount another disk there.",
            )
    except OSError as error:
        yield _warn(f"{error.filename or folder} cannot be looked at: {error.strerror}.", AWAY)


def _check_newest(folder: Path, every: timedelta, now: datetime) -> Finding:
    found = newest(folder, now)
    if not os.access(folder, os.W_OK | os.X_OK):
        return _warn(f"The user {os.geteuid()} cannot write to {folder}.", AWAY)
    if found is None:
        return _warn(f"There is no backup in {folder}.", LOG)
    newest_is = f"The newest is of {found.made_at:%Y-%m-%d %H:%M} (UTC)"
    if now - found.made_at > LATE * every:
        return _warn(f"{newest_is}, older than twice MEMORY_BACKUP_EVERY.", LOG)
    if found.is_damaged:
        return _warn(DAMAGED, "`agentops-memory doctor --fix` mends the database.")
    return ok("backup", f"{newest_is}.")
