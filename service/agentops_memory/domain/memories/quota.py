"""How much a tenant may store."""

from ..errors import OverQuota
from ..ports.engine import Transaction

SMALL = 16 * 1024 * 1024  # bytes that may be taken beyond by sessions, without which an agent is
# told nothing any more, and by records of what was done: each is small


def require_room(tx: Transaction) -> None:
    """Refuse with OverQuota what would add to a tenant that stores as much as it may."""
    _require(tx, beyond=0)


def require_room_for_session(tx: Transaction) -> None:
    """The same for a session, which may go a little further."""
    _require(tx, beyond=SMALL)


def require_room_for_record(tx: Transaction) -> None:
    """The same for a record of what was done: what makes room must be possible with a key."""
    _require(tx, beyond=SMALL)


def require_room_for_import(tx: Transaction, size: int) -> None:
    """The same for rows of so many bytes that are staged: stored and indexed they take twice."""
    _require(tx, beyond=-size)


def _require(tx: Transaction, *, beyond: int) -> None:
    if tx.room is not None and tx.room + beyond <= 0:
        raise OverQuota("The tenant stores as much as it may; nothing was stored.")
