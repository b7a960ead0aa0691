"""Tables that are damaged leave the schema, and no page of theirs is read or freed."""

from collections.abc import Iterable


def forgetting(tables: Iterable[str]) -> list[str]:
    """Statements that remove tables and views from the schema alone.

    A damaged page may point at pages of other tables, which a DROP would free.
    """
    names = ", ".join(f"'{table}'" for table in tables)
    return [
        "PRAGMA writable_schema = ON",
        f"DELETE FROM sqlite_schema WHERE tbl_name IN ({names})",
        "PRAGMA writable_schema = RESET",
    ]
