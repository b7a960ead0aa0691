"""The names of what a partition of the full-text index is made of."""

OWN_COLUMNS = ("title", "content", "tags")  # a memory's own words, not those that it borrows


def table(number: int) -> str:
    """The full-text table of a partition."""
    return f"memories_fts_{number}"


def stored_of(number: int) -> list[str]:
    """The tables in which FTS5 keeps a partition."""
    return [f"{table(number)}_{part}" for part in ("data", "idx", "docsize", "config")]


def text_of(number: int) -> str:
    """The view of the text that a partition holds."""
    return f"memory_text_{number}"
