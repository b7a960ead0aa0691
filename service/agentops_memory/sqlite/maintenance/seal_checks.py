"""A check of a database file: whether the keys that there are open what is sealed in it."""

import sqlite3
from collections.abc import Iterator

from ...memory.model.findings import Finding, ok, warn
from ...memory.model.memory import UNSAVED
from ...openintent.sql.seals import SealTable
from ..base.checks import Subject
from ..base.dialect import SQLITE

PAGE = 100  # entries that are opened at once


def check_seals(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    seals = SealTable(database, SQLITE, subject.sealer, subject.tenant)
    count, lost, after = 0, 0, UNSAVED
    while page := seals.page(after, PAGE):
        count, lost, after = (
            count + len(page),
            lost + sum(it.is_lost for it in page),
            page[-1].memory,
        )
    if not lost:
        yield ok("seals", f"All of it opens: {count:,} confidential values.")
        return
    yield warn(
        "seals",
        f"{lost:,} of {count:,} confidential values do not open: their keys are not in the seal "
        "file, or they are damaged.",
        "Put back the seal file from a copy, or from a backup, in which it is `seal.json`. What is "
        "lost for good can be deleted.",
    )
