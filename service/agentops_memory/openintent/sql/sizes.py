"""SQL for how many bytes values have."""

LARGEST = 2**32  # bytes; no value is as long


def sum_of(size: str) -> str:
    """The sum of sizes, 0 of none; a damaged one counts for nothing, and so overflows nothing."""
    return f"coalesce(sum(CASE WHEN {size} BETWEEN 0 AND {LARGEST} THEN {size} ELSE 0 END), 0)"
