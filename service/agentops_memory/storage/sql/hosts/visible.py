"""Which entries of a ref there are: now, or in a snapshot. Conditions on `ref_entries e`."""

from collections.abc import Mapping

from ....domain.model.hosts import Snapshot
from ..liveness import expired, superseded_in_ref


def undeleted_at(alias: str) -> str:
    """Not deleted at the event: what is deleted now may have been after it."""
    return f"({alias}.deleted_after IS NULL OR {alias}.deleted_after >= :offset)"


_SUPERSEDED_THEN = f"""EXISTS (SELECT 1
                                 FROM ref_supersessions x
                                 JOIN ref_entries n ON n.memory_id = x.newer_id
                                WHERE x.older_id = e.memory_id AND n.memory_id <= :high
                                      AND {undeleted_at("n")} AND NOT {expired("n.memory_id")})"""


def there(at: Snapshot | None) -> str:
    """Neither deleted nor expired."""
    unexpired = f"NOT {expired('e.memory_id')}"
    if at is None:
        return f"e.deleted_after IS NULL AND {unexpired}"
    return f"e.memory_id <= :high AND {undeleted_at('e')} AND {unexpired}"


def superseded(at: Snapshot | None) -> str:
    """Replaced by another entry that is there."""
    return superseded_in_ref("e.memory_id") if at is None else _SUPERSEDED_THEN


def values(at: Snapshot | None) -> Mapping[str, object]:
    """The values that the conditions name, beside `:now`."""
    return {} if at is None else {"offset": at.offset, "high": at.high}
