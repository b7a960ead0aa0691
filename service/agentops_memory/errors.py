"""What the domain refuses, with stable codes and sentences that are safe to show."""

from collections.abc import Sequence
from typing import ClassVar, TypeVar

T = TypeVar("T")


class RunAgain(Exception):
    """Nothing happened of the work, and it is run again: no fault."""


class Refusal(Exception):
    """A request that cannot be met; its text is a sentence for the caller."""

    code: ClassVar[str] = "error"


class Invalid(Refusal):
    """The request could not be understood."""

    code = "invalid_input"


class InvalidFields(Invalid):
    """The request was understood and breaks a limit; every fault is named."""

    code = "validation_error"


class BadFields(Invalid):
    """Fields of a body, or parameters, that are not what they should be; every one is named."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field} {fault}" for field, fault in faults) + ".")
        self.faults = faults


class NotFound(Refusal):
    code = "not_found"  # or the caller may not know of it


def required(it: T | None, sentence: str) -> T:
    """What was looked for; NotFound, with the sentence, if it is not there."""
    if it is None:
        raise NotFound(sentence)
    return it


class Unauthenticated(Refusal):
    code = "unauthenticated"  # no key, or none that opens this service


class Denied(Refusal):
    """The caller's key does not allow it; `scope` is the role, or the projects, that would."""

    code = "denied"

    def __init__(self, sentence: str, scope: str | None = None) -> None:
        super().__init__(sentence)
        self.scope = scope


class TooMany(Refusal):
    """The key, or the tenant, asks too much; the same request may succeed after some seconds."""

    code = "too_many"

    def __init__(self, sentence: str, retry_after: int = 1, scope: str = "key") -> None:
        super().__init__(sentence)
        self.retry_after = retry_after  # seconds
        self.scope = scope  # whose limit it is: "key" or "tenant"


class OverQuota(Refusal):
    code = "over_quota"  # the tenant stores as much as it may


class Conflict(Refusal):
    code = "constraint_violation"  # the stored state does not allow this change


class KeyReused(Conflict):
    """Another request was done under the idempotency key."""

    def __init__(self) -> None:
        super().__init__("Idempotency key reused with a different request body.")


class AnswerLost(Conflict):
    """The request was done, and what it was answered is not known any more."""

    def __init__(self) -> None:
        super().__init__("This was done, but its response is no longer known.")


class AnswerErased(NotFound):
    """The request was done, and what it was answered is erased."""

    def __init__(self) -> None:
        super().__init__("This was done, but its response has been erased.")


class PathTaken(Conflict):
    """Another entry holds the path, or lies where it leads through."""

    code = "path_taken"

    def __init__(self, sentence: str, entry: str, path: str) -> None:
        super().__init__(sentence)
        self.entry = entry  # its uid
        self.path = path


class Archived(Conflict):
    code = "archived"  # nothing in the store may change


class AlreadyDone(Conflict):
    code = "already_done"  # it is done once


class StillCurrent(Conflict):
    code = "still_current"  # the version is the newest of its entry


class Unavailable(Refusal):
    """The service cannot do this now; the same request may succeed later."""

    code = "unavailable"


class Busy(Unavailable):
    code = "db_locked"  # another writer held the database for too long


class TimedOut(Unavailable):
    code = "timed_out"  # the read was stopped


class Damaged(Unavailable):
    """A part of the database cannot be read as it was written."""


class Unreadable(Unavailable):
    """A stored value is no such thing as its column holds; it is never read as another one."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(
            sentence
            or "This cannot be served now: a row that it needs is damaged. "
            "`agentops-memory doctor` names it."
        )


class DamagedRow(Unreadable):
    """A row, or one that belongs to it, cannot be the record that it was stored as.

    Fails closed: a default in its place could permit what the row forbids. `what` says what
    cannot be served for it, and quotes nothing that is stored.
    """

    def __init__(self, table: str, row: object, column: str = "", what: str = "This") -> None:
        where = f" ({column})" if column else ""
        super().__init__(
            f"{what} cannot be served now: row {row} of {table} is damaged{where}. "
            "`agentops-memory doctor` says what can be repaired."
        )
        self.table, self.row, self.column = table, str(row), column


class AtItem(Refusal):
    """An item of a batch is refused, and so is all of it, by the code of its refusal."""

    code = "invalid_input"  # of those that tell no items apart

    def __init__(self, number: int, refusal: Refusal) -> None:
        super().__init__(f"entries[{number}]: {refusal}")
        self.number, self.refusal = number, refusal


WITHOUT_WORDS = TimedOut, Damaged
"""For these the newest memories stand in for those that words would have found."""


class Full(Unavailable):
    code = "storage_full"  # no space is left on the disk


class StartRefused(Refusal):
    """The file cannot be used and was left as it is; the sentence says what to do."""

    code = "start_refused"


class SettingRefused(Exception):
    """A setting that cannot be used; its text is a sentence for the operator."""
