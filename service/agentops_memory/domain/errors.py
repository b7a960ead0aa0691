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


class Conflict(Refusal):
    """The stored state does not allow this change."""

    code = "constraint_violation"


class Unavailable(Refusal):
    """The service cannot do this now; the same request may succeed later."""

    code = "unavailable"


class Busy(Unavailable):
    """Another writer held the database for too long."""

    code = "db_locked"


class TimedOut(Unavailable):
    """The read took too long and was stopped."""

    code = "timed_out"


class Full(Unavailable):
    """There is no space left to store anything."""

    code = "storage_full"
