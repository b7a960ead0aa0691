"""The parameters that several operations take."""

from ...http.protocol import Parameter


def limit(usual: int, most: int) -> Parameter:
    """How many."""
    return Parameter(
        name="limit",
        kind="integer",
        help=f"How many, {usual} unless told; at most {most:,}.",
        is_row_count=True,
    )
