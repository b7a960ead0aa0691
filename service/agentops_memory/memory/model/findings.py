"""The findings of a check: each a sentence, with its status and remedy."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

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
    "database": "the PostgreSQL database: can it be reached, and used by this role",
    "durability": "whether a commit is on disk, and on a standby, before it is acknowledged",
    "transactions": "transactions of PostgreSQL that are older than an hour",
    "autovacuum": "whether PostgreSQL vacuums the tables",
    "file": "the database file: is it there, is it a file, can it be read, has it one name alone",
    "folder": "whether the file and its folder can be written",
    "mode": "who else may read the database",
    "owner": "whether all files belong to one user",
    "open-files": "whether a process has the database or its log open, but another file or none is "
    "at the path",
    "journal": "what a process that was killed left of its last transaction",
    "leftovers": "drafts of processes that were killed",
    "copies": "copies beside the database, made before an upgrade, a restore or `doctor --fix`",
    "file-system": "what kind of file system it is, and whether it can be written",
    "space": "free space and inodes",
    "format": "which version of the program made the database",
    "schema": "tables, indexes, views and triggers, compared with those of the migrations",
    "integrity": "whether SQLite finds the file sound",
    "values": "whether each row can be what it was stored as: text, an instant, a number",
    "references": "whether every row that another one names is there, every memory belongs to a "
    "session, a store, an agent or a ref, and no run lacks events; and whether a lifecycle, a "
    "supersession or a pair of look-alikes is of memories that may have it",
    "index": "whether the full-text index is in line with the memories",
    "size": "how much the database holds, and how much of it is unused",
    "log": "how long the write-ahead log is",
    "quota": "how near the tenant is to its quota",
    "clock": "whether the clock goes right, and no row is from the future",
    "erasures": "whether the bytes of what was erased have left the file",
    "sessions": "whether idle sessions have ended",
    "tenants": "which tenants there are",
    "backup": "the backups that the service makes by itself: are they new enough, on another disk",
    "keys": "the keys: can they be read, is their file private, does any key work",
    "redaction": "the file of what is not taken for a secret",
    "seal": "the keys of confidential values: can their file be read, is it private",
    "seals": "whether the keys of the seal file open each confidential value",
    "audit": "the audit file: can it be read, is it private, is each line whole",
    "settings": "the settings: can each be used",
    "environment": "variables that look like settings and are none",
    "auth": "whether the service would let in anybody, or nobody",
    "served": "which process serves this database now",
    "program": "the versions of the program, of Python and of SQLite",
}
"""What is looked at, by the code of its findings."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    order = list(reversed(Status))
    return sorted(findings, key=lambda finding: order.index(finding.status))


def has_failed(findings: Sequence[Finding]) -> bool:
    return any(finding.status is Status.FAILED for finding in findings)


def some_of(values: Sequence[object]) -> str:
    """The first of the values, as a sentence names them."""
    more = " and more" if len(values) > MOST_NAMED else ""
    return "; ".join(map(str, values[:MOST_NAMED])) + more
