"""The SQL of liveness: which memories there are at the instant of a transaction, `:now`.

Each is a condition on a memory under an alias, or under the name of its table; `expired` and
`superseded` ask for its id alone, which may be all that is known of a row.
"""

from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from .rows import EARLIEST, LAST, micros

# Comes first in each: it is what the partial indexes of memories say.
_UNDELETED = "{0}.deleted_at IS NULL"

# Of a lifecycle: at or past its end; and that the index still holds it, or not yet again. Only an
# end that can be one counts: reading a memory with another one refuses it, and nothing
# removes it.
ENDED = f"expires_at BETWEEN {EARLIEST} AND :now"
UNSWEPT = f"expires_at IS NOT NULL AND NOT is_swept AND {ENDED}"
RETURNED = f"is_swept AND NOT {ENDED}"

# Of a permission on an intent: before its end, if it has one. An end out of range permits nothing.
IN_FORCE = f"(expires_at IS NULL OR (expires_at > :now AND expires_at <= {LAST}))"


def undeleted(alias: str) -> str:
    """Live or expired."""
    return _UNDELETED.format(alias)


def deleted(alias: str) -> str:
    """Deleted, and kept for as long as its retention says."""
    return f"{alias}.deleted_at IS NOT NULL"


def live(alias: str) -> str:
    """Neither deleted nor expired."""
    return f"{undeleted(alias)} AND NOT {expired(alias + '.id')}"


def expired(id_: str) -> str:
    """At or past its end."""
    return f"""EXISTS (SELECT 1
                         FROM lifecycles
                        WHERE lifecycles.memory_id = {id_}
                              AND lifecycles.{ENDED})"""


def indexed(alias: str) -> str:
    """In the full-text index: not deleted, and not taken out by the sweep of expired ones."""
    return f"""{undeleted(alias)}
               AND NOT EXISTS (SELECT 1
                                 FROM lifecycles
                                WHERE lifecycles.memory_id = {alias}.id
                                      AND lifecycles.is_swept)"""


def superseded(id_: str) -> str:
    """Listed by a live memory that supersedes it."""
    return _superseded("supersessions", id_)


def superseded_in_ref(id_: str) -> str:
    """The same, of entries of refs."""
    return _superseded("ref_supersessions", id_, "AND link.ended_after IS NULL")


def _superseded(links: str, id_: str, which: str = "") -> str:
    return f"""EXISTS (SELECT 1
                         FROM {links} link
                         JOIN memories newer ON newer.id = link.newer_id
                        WHERE link.older_id = {id_} {which} AND {live("newer")})"""


def seen_by_a_run(memories: str) -> str:
    """That an open run has memories in its snapshot, though they were deleted since."""
    return f"""EXISTS (SELECT 1
                         FROM ref_entries e
                         JOIN runs r ON r.log_offset <= e.deleted_after AND r.high >= e.memory_id
                        WHERE e.memory_id = {memories}.id AND r.ended_at IS NULL
                              AND e.deleted_after >= (SELECT min(log_offset)
                                                        FROM runs
                                                       WHERE ended_at IS NULL))"""


class Facts(NamedTuple):
    """Whether there are any: what there is none of, a reader need not ask for."""

    pins: bool
    unswept: bool  # that have expired, and that the index still holds
    superseded: bool


class Moment:
    """The instant of a transaction, and what a reader has to ask for then."""

    def __init__(self, connection: Any, now: datetime) -> None:
        self.now = now
        self.values: dict[str, object] = {"now": micros(now)}
        self._connection = connection

    @cached_property
    def has(self) -> Facts:
        return Facts(*map(bool, self._connection.execute(_FACTS, self.values).fetchone()))


_FACTS = f"""
    SELECT EXISTS (SELECT 1 FROM lifecycles WHERE pinned_at IS NOT NULL),
           EXISTS (SELECT 1 FROM lifecycles WHERE {UNSWEPT}),
           EXISTS (SELECT 1 FROM supersessions)"""
