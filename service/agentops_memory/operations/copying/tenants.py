"""All tenants of a service, or some, are copied from its files into a database, or back.

A tenant is copied whole or not at all: into a database in one transaction, into a file as a draft
that has its name at the end. So what was interrupted is gone on with: a tenant that is there with
the same rows is left alone, and one with others is refused before anything is copied.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from ...memory.model.access import TenantId
from ...memory.model.keys import By, KeyRegistry, KeyRing
from ...recall.text.features import Features
from ..files.atomic import make_folder
from ..files.service_lock import service_lock
from . import CopyRefused, Table, Tally
from .database import Database, DatabaseRows
from .files import FileRows, Files

KEYS_COPIED = "keys.copied"

Side = Files | Database
Rows = FileRows | DatabaseRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A tenant that is in both places."""

    tenant: TenantId
    tally: Tally
    was_there: bool


def to_database(
    files: Files, url: str, named: Sequence[TenantId], *, at: datetime, by: By
) -> Iterator[Copied]:
    """Copy the tenants of a service, all or those that are named, each with its keys.

    The audit goes with all of them. Each is compared, and kept, before the next begins.
    CopyRefused for a database that holds anything else, StartRefused or Unavailable for one
    that cannot be used. Refused, too, while a service runs on either.
    """
    with (
        service_lock(files.path),
        Database.opened(url, files.features, is_source=False) as database,
    ):
        yield from _all_copied(files, database, named, at, by)


def to_files(
    url: str, files: Files, named: Sequence[TenantId], *, at: datetime, by: By
) -> Iterator[Copied]:
    """Copy the tenants of a database to the files of a service, as above."""
    with (
        Database.opened(url, files.features, is_source=True) as database,
        service_lock(files.path),
    ):
        make_folder(files.path.parent)
        yield from _all_copied(database, files, named, at, by)


def _all_copied(
    source: Side, target: Side, named: Sequence[TenantId], at: datetime, by: By
) -> Iterator[Copied]:
    chosen = _chosen(source, named)
    there = [it for it in target.tenants() if it in chosen or not named]
    held = [it for it in there if target.holds(it)]
    if others := [it for it in held if it not in chosen]:
        raise CopyRefused(
            f"The target holds the tenant {others[0]}, which the source has not; name another, or "
            "name those that are to be copied with --tenant."
        )
    done = {it: _same(source, target, it) for it in held}
    if not named:
        _copy_audit(source, target)
    _copy_keys(source.keys, target.keys, named, at, by)
    for tenant in chosen:
        tally = done.get(tenant)
        if tally is None:
            with source.rows(tenant) as rows, target.filled(tenant) as new:
                tally = _copied(rows, new, source.features)
        yield Copied(tenant=tenant, tally=tally, was_there=tenant in done)


def _chosen(source: Side, named: Sequence[TenantId]) -> Sequence[TenantId]:
    there = source.tenants()
    if missing := [it for it in named if it not in there]:
        raise CopyRefused(f"There is no tenant {missing[0]} {source.where}.")
    if not there:
        raise CopyRefused(f"There is no tenant {source.where}.")
    return list(dict.fromkeys(named)) or there


def _copied(source: Rows, target: Rows, features: Features) -> Tally:
    """Copy all rows, make their words, and compare; CopyRefused where the copy differs."""
    tables, tally = source.tables or target.tables, Tally()
    for table in tables:
        target.put(table, tally.counting(table, source.read(table)))
    target.finish(source.last_ids(), features)
    tally.require(_tally(target, tables))
    return tally


def _same(source: Side, target: Side, tenant: TenantId) -> Tally:
    with source.rows(tenant) as ours, target.rows(tenant) as theirs:
        tables = ours.tables or theirs.tables
        tally = _tally(ours, tables)
        if _tally(theirs, tables) != tally:
            raise CopyRefused(
                f"The tenant {tenant} is in the target already, with other rows. Nothing was "
                "copied; erase it there, or name another target."
            )
    return tally


def _tally(rows: Rows, tables: Iterable[Table]) -> Tally:
    tally = Tally()
    for table in tables:
        for _ in tally.counting(table, rows.read(table)):
            pass
    return tally


def _copy_keys(
    source: KeyRegistry, target: KeyRegistry, named: Sequence[TenantId], at: datetime, by: By
) -> None:
    """Copy the keys of some tenants, or all; the audit of the target tells which are new.

    CopyRefused where the target has others, or one of them otherwise.
    """
    ring = source.ring()
    source.require_kept(ring)
    keys = {it.id: it for it in ring.keys.values() if not named or it.tenant in named}
    there = target.ring().keys
    if any(keys.get(id_) != key for id_, key in there.items() if id_ in keys or not named):
        raise CopyRefused("The target has keys already, and others; nothing was copied.")
    if new := [it for it in keys.values() if it.id not in there]:
        with target.changing() as (before, put):
            ring = reduce(KeyRing.with_key, new, before)
            put(ring, at, KEYS_COPIED, by, keys=[key.id for key in new])


def _copy_audit(source: Side, target: Side) -> None:
    ours, theirs = list(source.audit_lines()), list(target.audit_lines())
    if theirs and theirs[: len(ours)] != ours:
        raise CopyRefused("The target has an audit already, and another; nothing was copied.")
    if not theirs:
        target.put_audit(ours)
