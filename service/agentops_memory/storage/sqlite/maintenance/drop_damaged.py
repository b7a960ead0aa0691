"""Tables and indexes that are damaged leave the schema, and no page of theirs is read or freed."""

from collections.abc import Iterable


def forgetting(names: Iterable[str]) -> list[str]:
    """Statements that remove tables, views and indexes from the schema alone.

    A damaged page may point at pages of others, which a DROP would free. Their own pages are
    used by nothing then, until the file is written anew.
    """
    quoted = ", ".join("'{}'".format(name.replace("'", "''")) for name in names)
    return [
        "PRAGMA writable_schema = ON",
        f"DELETE FROM sqlite_schema WHERE name IN ({quoted}) OR tbl_name IN ({quoted})",
        "PRAGMA writable_schema = RESET",
    ]
