"""What the domain refuses, with stable codes and sentences that are safe to show."""

from typing import ClassVar


class Refusal(Exception):
    """A request that cannot be met; its text is a sentence for the caller."""

    code: ClassVar[str] = "error"


class Invalid(Refusal):
    """The request could not be understood."""

    code = "invalid_input"


class InvalidFields(Invalid):
    """The request was understood and breaks a limit; every fault is named."""

    code = "validation_error"


class NotFound(Refusal):
    """There is no such thing, or none that this caller may know of."""

    code = "not_found"


class Unauthenticated(Refusal):
    """The caller brought no key that opens this service."""

    code = "unauthenticated"


class Denied(Refusal):
    """The caller's key does not allow this."""

    code = "denied"


class TooMany(Refusal):
    """The caller has asked too often; the same request succeeds after some seconds."""

    code = "too_many"

    def __init__(self, sentence: str, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after  # seconds


class OverQuota(Refusal):
    """The tenant stores as much as it may."""

    code = "over_quota"


class Conflict(Refusal):
    """The stored state does not allow this change."""

    code = "constraint_violation"


class Stale(Conflict):
    """The state that the caller expected is not the one there is; nothing was changed."""

    code = "stale"


class PathTaken(Conflict):
    """Another entry holds the path, or lies where it leads through."""

    code = "path_taken"

    def __init__(self, sentence: str, entry: str, path: str) -> None:
        super().__init__(sentence)
        self.entry = entry  # its uid
        self.path = path


class Archived(Conflict):
    """The store is archived: what is in it stays as it is."""

    code = "archived"


class AlreadyDone(Conflict):
    """It was done before, and is done once."""

    code = "already_done"


class StillCurrent(Conflict):
    """The version is what its entry says now."""

    code = "still_current"


class Unavailable(Refusal):
    """The service cannot do this now; the same request may succeed later."""

    code = "unavailable"


class Busy(Unavailable):
    """Another writer held the database for too long."""

    code = "db_locked"


class TimedOut(Unavailable):
    """The read took too long and was stopped."""

    code = "timed_out"


class Damaged(Unavailable):
    """A part of the database cannot be read as it was written."""


WITHOUT_WORDS = TimedOut, Damaged
"""For these the newest memories stand in for those that words would have found."""


class Full(Unavailable):
    """There is no space left to store anything."""

    code = "storage_full"


class StartRefused(Refusal):
    """The file cannot be used and was left as it is; the sentence says what to do."""

    code = "start_refused"


class SettingRefused(Exception):
    """A setting that cannot be used; its text is a sentence for the operator."""
