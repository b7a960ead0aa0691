"""The keys and the audit of a service, which go before its tenants: nobody is let in meanwhile."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import reduce
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import psycopg

from ...errors import Unavailable
from ...memory.model.access import TenantId
from ...memory.model.keys import By, KeyRegistry, KeyRing
from ...memory.sql.rows import micros
from ...recall.text.normalization import clean
from ..files.atomic import os_errors_as, private_file
from ..files.audit import written_at
from .tables import CopyRefused

KEYS_COPIED = "keys.copied"
FIRST = datetime.fromtimestamp(0, UTC)  # of what is no line of ours and comes before all others


def copy_keys(
    source: KeyRegistry,
    target: KeyRegistry,
    tenants: Collection[TenantId],
    *,
    at: datetime,
    by: By,
) -> None:
    """Copy the keys of some tenants, or all; the audit of the target tells which are new.

    CopyRefused where the target has others, or one of them otherwise.
    """
    ring = source.ring()
    source.require_kept(ring)
    keys = {it.id: it for it in ring.keys.values() if not tenants or it.tenant in tenants}
    there = target.ring().keys
    if any(keys.get(id_) != key for id_, key in there.items() if id_ in keys or not tenants):
        raise CopyRefused("The target has keys already, and others; nothing was copied.")
    if new := [it for it in keys.values() if it.id not in there]:
        with target.changing() as (before, put):
            ring = reduce(KeyRing.with_key, new, before)
            put(ring, at, KEYS_COPIED, by, keys=[key.id for key in new])


def audit_to_database(path: Path, connection: psycopg.Connection[Any]) -> None:
    """Copy the lines of an audit file; CopyRefused where the database has others."""
    if _are_there(_in_file(path), _in_database(connection)):
        return
    with connection.cursor().copy("COPY agentops.audit (at, line) FROM STDIN") as copy:
        at = FIRST
        for line in _in_file(path):
            at = written_at(line.encode()) or at
            copy.write_row((micros(at), line))


def audit_to_file(connection: psycopg.Connection[Any], path: Path) -> None:
    """Copy the audit of a database; CopyRefused where the file has other lines."""
    if _are_there(_in_database(connection), _in_file(path)):
        return
    with (
        os_errors_as(Unavailable, f"The audit file {path} cannot be written"),
        private_file(path, os.O_WRONLY | os.O_TRUNC, like=path.parent) as descriptor,
    ):
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.writelines(f"{line}\n".encode() for line in _in_database(connection))
        os.fsync(descriptor)


def _are_there(source: Iterable[str], target: Iterator[str]) -> bool:
    """Whether the target has the lines of the source, or begins with them; false if it has none."""
    if (first := next(target, None)) is None:
        return False
    for ours, theirs in zip_longest(source, chain([first], target)):
        if ours is None:
            break
        if ours != theirs:
            raise CopyRefused("The target has an audit already, and another; nothing was copied.")
    return True


def _in_file(path: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            yield clean(line.rstrip(b"\n").decode("utf-8", "replace"))


def _in_database(connection: psycopg.Connection[Any]) -> Iterator[str]:
    rows = connection.cursor().stream("SELECT line FROM agentops.audit ORDER BY number")
    return (line for (line,) in rows)
