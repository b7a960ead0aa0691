"""Which entries of a ref there are: now, or in a snapshot. Conditions on `ref_entries e`."""

from collections.abc import Mapping

from ...memory.sql.liveness import expired, superseded_in_ref
from ...memory.sql.rows import MOST
from ..model.runs import Snapshot


def undeleted_at(alias: str) -> str:
    """Not deleted at the event: what is deleted now may have been after it."""
    deleted_after = f"{alias}.deleted_after"
    return f"({deleted_after} IS NULL OR {deleted_after} BETWEEN :offset AND {2 * MOST})"


def put_by(alias: str, of: str = ":high") -> str:
    """Put by then: what was renewed without its secrets, when it was put first."""
    return f"coalesce({alias}.renews, {alias}.memory_id) <= {of}"


_SUPERSEDED_THEN = f"""EXISTS (SELECT 1
                                 FROM ref_supersessions x
                                 JOIN ref_entries n ON n.memory_id = x.newer_id
                                WHERE x.older_id = e.memory_id AND x.made_after < :offset
                                      AND (x.ended_after IS NULL OR x.ended_after >= :offset)
                                      AND {put_by("n")}
                                      AND {undeleted_at("n")} AND NOT {expired("n.memory_id")})"""


def there(at: Snapshot | None, alias: str = "e") -> str:
    """Neither deleted nor expired."""
    unexpired = f"NOT {expired(f'{alias}.memory_id')}"
    if at is None:
        return f"{alias}.deleted_after IS NULL AND {unexpired}"
    return f"{put_by(alias)} AND {undeleted_at(alias)} AND {unexpired}"


def superseded(at: Snapshot | None) -> str:
    """Replaced by another entry that is there."""
    return superseded_in_ref("e.memory_id") if at is None else _SUPERSEDED_THEN


def values(at: Snapshot | None) -> Mapping[str, object]:
    """The values that the conditions name, beside `:now`."""
    return {} if at is None else {"offset": at.offset, "high": at.high}
