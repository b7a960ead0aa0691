"""What is said of a PostgreSQL database; unset, all lies in a file of SQLite."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from ..errors import SettingRefused
from . import parsing
from .variables import variable

OF_FILES = (
    "that is of files, and PostgreSQL has its own: pg_dump, or base backups with point-in-time "
    "recovery."
)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """The settings of the database; the URL is a secret, and has no flag."""

    database_url: str | None = field(repr=False, metadata=variable(
        "MEMORY_DATABASE_URL", "", "URL", parsing.database_url,
        help="The URL of a PostgreSQL database that keeps everything in place of the file.",
    ))
    database_pool: int = field(metadata=variable(
        "MEMORY_DATABASE_POOL", "--database-pool", "NUMBER", parsing.between(1, 1000), "8",
        help="How many connections to PostgreSQL a process has for requests.",
    ))
    database_retention: timedelta | None = field(metadata=variable(
        "MEMORY_DATABASE_RETENTION", "--database-retention", "TIME", parsing.optional_retention,
        help="How long the write-ahead log and the backups of PostgreSQL are kept, so that "
        "receipts of erasures can say when the bytes are gone. Unset: they never say so.",
    ))
    # fmt: on


def require_backup_dir(values: Mapping[str, object], given: Mapping[str, str | None]) -> None:
    """Refuse settings of backups with which none would be made."""
    if values["database_url"] and values["backup_dir"]:
        raise SettingRefused(f"MEMORY_BACKUP_DIR: {OF_FILES}")
    lonely = [name for name in ("backup_every", "backup_keep") if given[name]]
    if lonely and values["backup_every"] and values["backup_dir"] is None:
        raise SettingRefused(
            f"MEMORY_{lonely[0].upper()}: MEMORY_BACKUP_DIR must say where backups are to lie."
        )
