"""The findings of a check: each a sentence, with its status and remedy."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from ..light import dataclass, field
from .access import TenantId

Fix = Callable[[], str]
"""Does what is safe about a finding, and says in a sentence what it did."""

GARBAGE = (ValueError, TypeError, ArithmeticError, RuntimeError)
"""What Python raises of files that hold something else than they should."""

MOST_NAMED = 10  # values that a sentence names


class Status(StrEnum):
    """How bad a finding is: to know, to act on, or something does not work or is lost."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    code: str  # one of CODES
    sentence: str
    status: Status = Status.OK
    tenant: TenantId | None = None  # whose database; none for what all of them share
    remedy: str = ""  # a sentence or a command
    fix: Fix | None = field(default=None, compare=False, repr=False)

    @property
    def is_fixable(self) -> bool:
        """Whether `--fix` does something about it."""
        return self.fix is not None


def ok(code: str, sentence: str) -> Finding:
    return Finding(code=code, sentence=sentence)


def note(code: str, sentence: str, remedy: str = "") -> Finding:
    return Finding(code=code, status=Status.NOTE, sentence=sentence, remedy=remedy)


def warn(code: str, sentence: str, remedy: str, *, fix: Fix | None = None) -> Finding:
    return Finding(code=code, status=Status.WARNING, sentence=sentence, remedy=remedy, fix=fix)


def failed(code: str, sentence: str, remedy: str, *, fix: Fix | None = None) -> Finding:
    return Finding(code=code, status=Status.FAILED, sentence=sentence, remedy=remedy, fix=fix)


CODES = {
    "database": "whether the role can connect to the PostgreSQL database and use it",
    "durability": "whether commits reach the disk, and a standby, before they are acknowledged",
    "transactions": "PostgreSQL transactions older than an hour",
    "autovacuum": "whether PostgreSQL vacuums the tables",
    "file": "whether the database file exists, is readable and has a single name",
    "folder": "whether the file and its folder are writable",
    "mode": "who else can read the database",
    "owner": "whether one user owns all files",
    "open-files": "whether a process has the database or its log open while its path holds "
    "another file or none",
    "journal": "what a killed process left of its last transaction",
    "leftovers": "unfinished files of killed processes",
    "copies": "copies made before an upgrade, a restore or `doctor --fix`",
    "file-system": "the kind of file system, and whether it is writable",
    "space": "free space and inodes",
    "format": "which version of the program made the database",
    "schema": "tables, indexes, views and triggers, compared with the migrations",
    "integrity": "whether SQLite's integrity check passes",
    "values": "whether every value of every row is valid",
    "references": "whether every referenced row exists, and whether the lifecycle, "
    "supersessions and near duplicates of every memory are valid",
    "index": "whether the full-text index matches the memories",
    "size": "the size of the database, and how much of it is unused",
    "log": "the length of the write-ahead log",
    "quota": "how close the tenant is to its quota",
    "clock": "whether the clock is right, and no row is from the future",
    "erasures": "whether erased bytes have left the file",
    "sessions": "whether idle sessions have ended",
    "tenants": "which tenants exist",
    "backup": "whether scheduled backups are recent enough and on another disk",
    "keys": "whether the keys are readable, private and usable",
    "redaction": "the file of exceptions to redaction",
    "seal": "whether the file of seal keys is readable and private",
    "seals": "whether the seal keys open every confidential value",
    "audit": "whether the audit file is readable, private and complete",
    "settings": "whether every setting is valid",
    "environment": "variables that look like settings but are not",
    "auth": "whether the service would admit everyone, or no one",
    "served": "which process serves the database now",
    "program": "the versions of the program, of Python and of SQLite",
}
"""What each check examines, by the code of its findings."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    order = list(reversed(Status))
    return sorted(findings, key=lambda finding: order.index(finding.status))


def has_failed(findings: Sequence[Finding]) -> bool:
    return any(finding.status is Status.FAILED for finding in findings)


def some_of(values: Sequence[object]) -> str:
    """The first of the values, as a sentence names them."""
    more = " and more" if len(values) > MOST_NAMED else ""
    return "; ".join(map(str, values[:MOST_NAMED])) + more
