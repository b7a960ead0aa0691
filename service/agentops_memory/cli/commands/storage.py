"""`stats --storage`: what each tenant's file is made of, and what is kept for how long."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ...domain.model.access import tenant_id
from ...domain.model.retention import WHAT, Held, Kind, Retentions
from ...domain.text.instants import rendered
from ...files.audit import measured
from ...storage.sqlite.engine.tenant_files import tenants_of
from ...storage.sqlite.maintenance.storage_stats import StorageStats, storage_stats
from ..errors import failures
from ..json_output import print_json
from ..output import columns, show, size
from ..service_files import now
from ..target import Reach, usable_file

if TYPE_CHECKING:
    from ...settings.settings import Settings

HEADINGS = ("KIND", "ROWS", "ABOUT", "OLDEST", "KEPT", "NEXT SWEEP")
NONE = "-"
UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


def print_storage(where: Mapping[str, str | None], *, as_json: bool) -> None:
    """Print what there is of each tenant, or of the one that is named, and of the audit file."""
    reach = Reach.of(where)
    if reach.url is not None:
        raise click.UsageError("--storage looks at files: give --db, on the service's machine.")
    with failures():
        place, at = reach.place, now()
        every = {tenant: _holdings(place, tenant, at) for tenant in _tenants(place, reach.tenant)}
        audit = measured(place.audit_file, place.kept.until(Kind.AUDIT, at))
    if as_json:
        print_json(_told(every, audit, place.kept))
    else:
        _print(every, audit, place.kept)


def _tenants(place: "Settings", name: str | None) -> Sequence[str]:
    if name is not None:
        return [tenant_id(name)]
    usable_file(place, None, may_make=False)
    return tenants_of(place.db_path)


def _holdings(place: "Settings", tenant: str, at: datetime) -> StorageStats:
    _, path = usable_file(place, tenant, may_make=False)
    return storage_stats(path, place.kept, at)


def _print(every: Mapping[str, StorageStats], audit: Held, kept: Retentions) -> None:
    for tenant, found in every.items():
        show(f"{tenant}: {size(found.database)}", bold=True)
        show(
            f"{size(found.index)} of it index, {size(found.free)} free; "
            f"beside it {size(found.log)} of log, {size(found.copies)} of copies",
            indent=2,
        )
        columns(HEADINGS, [_row(it, kept) for it in found.held])
    show(f"audit file of all tenants: {size(audit.size)}", bold=True)
    columns(HEADINGS, [_row(audit, kept)])


def _row(held: Held, kept: Retentions) -> tuple[object, ...]:
    oldest = NONE if held.oldest is None else rendered(held.oldest)
    going = f"{held.past_retention:,}" if held.past_retention else NONE
    return held.kind, f"{held.rows:,}", size(held.size), oldest, _kept(held.kind, kept), going


def _told(every: Mapping[str, StorageStats], audit: Held, kept: Retentions) -> dict[str, Any]:
    tenants = [
        {
            "tenant": tenant,
            "database_bytes": found.database,
            "index_bytes": found.index,
            "free_bytes": found.free,
            "log_bytes": found.log,
            "copies_bytes": found.copies,
            "kept": [_of_kind(held, kept) for held in found.held],
        }
        for tenant, found in every.items()
    ]
    return {"tenants": tenants, "audit": _of_kind(audit, kept)}


def _of_kind(held: Held, kept: Retentions) -> dict[str, Any]:
    told = {
        "kind": held.kind.value,
        "what": WHAT[held.kind],
        "rows": held.rows,
        "bytes": held.size,
        "kept_for": _kept(held.kind, kept),
        "next_sweep": held.past_retention,
    }
    return told if held.oldest is None else told | {"oldest": rendered(held.oldest)}


def _kept(kind: Kind, kept: Retentions) -> str:
    """How long a kind is kept, as people say it."""
    if kind is Kind.REVISIONS:
        return f"newest {kept.revisions}" if kept.revisions else "all"
    time = kept.time(kind)
    for unit, length in UNITS.items():
        if time and time % length == timedelta():
            return f"{time // length}{unit}"
    return f"{time.total_seconds():g}s" if time else "for ever"
