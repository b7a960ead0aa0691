"""What errors of PostgreSQL mean for a caller."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from ...errors import Busy, Conflict, Damaged, Full, TimedOut, Unavailable

log = logging.getLogger(__name__)

UNREACHABLE = "The database cannot be reached now."
OTHER_RULES = (
    "The index is by other rules, of another release or setting; try again: a service with the "
    "same rules takes this, or this one when it leads."
)
COLLIDED = (errors.DeadlockDetected, errors.SerializationFailure)
"""A transaction that met one of these did nothing, and may do it when it is run again."""

_LOST = ("08", "57P", "25P03")  # codes of a connection that ends
_SPENT = ("53", "58")  # of a server that has not what it needs

_REFUSALS = (
    (errors.LockNotAvailable, Busy, "Another writer holds the database for too long; try again."),
    (errors.QueryCanceled, TimedOut, "The database took too long to answer."),
    (errors.DiskFull, Full, "No space is left in the database; nothing was stored."),
    (errors.OutOfMemory, Unavailable, "The database has no memory left for this."),
    (errors.TooManyConnections, Busy, "The database has no connection left; try again."),
    (errors.ReadOnlySqlTransaction, Unavailable, "The database takes no writes now."),
    (errors.UndefinedTable, Unavailable, "The tenant's schema is gone from the database."),
    (errors.InsufficientPrivilege, Unavailable, "The database refuses the service's role."),
    (errors.DataCorrupted, Damaged, "A part of the database cannot be read."),
    (errors.IndexCorrupted, Damaged, "An index of the database cannot be read."),
    (COLLIDED, Busy, "Too many writers were in each other's way; try again."),
    (errors.IntegrityError, Conflict, "The stored state does not allow this."),
)


@contextmanager
def translated() -> Iterator[None]:
    """Let errors of the database be refusals; a broken connection is Unavailable."""
    try:
        yield
    except psycopg.Error as error:
        if isinstance(error, errors.NotNullViolation) and error.diag.table_name == "areas":
            raise Unavailable(OTHER_RULES) from error
        for kinds, refusal, sentence in _REFUSALS:
            if isinstance(error, kinds):
                # Logged and raised: the caller is told to come back, the operator can help.
                log.warning("the database refused", extra={"code": error.sqlstate})
                raise refusal(sentence) from error
        if is_lost(error) or (error.sqlstate or "").startswith(_SPENT):
            raise Unavailable(UNREACHABLE) from error
        raise


def is_lost(error: psycopg.Error) -> bool:
    """Whether it tells of a connection that is no more, or of a server that goes."""
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return code.startswith(_LOST)
