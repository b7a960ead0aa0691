"""`stats --storage`: what each tenant's file is made of, and the retention of each kind."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from ...memory.model.retention import WHAT, Held, Kind, Retentions, StorageStats
from ...recall.text.instants import rendered
from ..errors import file_errors
from ..invocation import now
from ..output import print_table, show, size
from ..place import usable
from ..print_results import print_json
from ..target import Target

HEADINGS = ("KIND", "ROWS", "ABOUT", "OLDEST", "KEPT", "NEXT SWEEP")
NONE = "-"
UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


def print_storage(where: Mapping[str, str | None], *, as_json: bool) -> None:
    """Print what there is of each tenant, or of the one that is named, and of the audit file."""
    target = Target.of(where)
    if target.url is not None:
        raise click.UsageError("--storage looks at files: give --db, on the service's machine.")
    with file_errors():
        place, tenant = usable(target.flags, target.tenant, may_make=False)
        retention, at = place.settings.retention, now()
        every: dict[str, StorageStats] = {}
        for each in [tenant] if target.tenant else place.tenants():
            place.require_usable(each)
            every[each] = place.stats(each, at)
        audit = place.audit.measured(retention.until(Kind.AUDIT, at))
    if as_json:
        print_json(_document(every, audit, retention))
    else:
        _print(every, audit, retention)


def _print(every: Mapping[str, StorageStats], audit: Held, retention: Retentions) -> None:
    for tenant, found in every.items():
        show(f"{tenant}: {size(found.database)}", bold=True)
        show(
            f"{size(found.index)} of it index, {size(found.free)} free; "
            f"beside it {size(found.log)} of log, {size(found.copies)} of copies",
            indent=2,
        )
        print_table(HEADINGS, [_row(it, retention) for it in found.held])
    show(f"audit file of all tenants: {size(audit.size)}", bold=True)
    print_table(HEADINGS, [_row(audit, retention)])


def _row(held: Held, retention: Retentions) -> tuple[object, ...]:
    oldest = NONE if held.oldest is None else rendered(held.oldest)
    going = f"{held.past_retention:,}" if held.past_retention else NONE
    return held.kind, f"{held.rows:,}", size(held.size), oldest, _kept(held.kind, retention), going


def _document(
    every: Mapping[str, StorageStats], audit: Held, retention: Retentions
) -> dict[str, Any]:
    tenants = [
        {
            "tenant": tenant,
            "database_bytes": found.database,
            "index_bytes": found.index,
            "free_bytes": found.free,
            "log_bytes": found.log,
            "copies_bytes": found.copies,
            "kept": [_of_kind(held, retention) for held in found.held],
        }
        for tenant, found in every.items()
    ]
    return {"tenants": tenants, "audit": _of_kind(audit, retention)}


def _of_kind(held: Held, retention: Retentions) -> dict[str, Any]:
    fields = {
        "kind": held.kind.value,
        "what": WHAT[held.kind],
        "rows": held.rows,
        "bytes": held.size,
        "kept_for": _kept(held.kind, retention),
        "next_sweep": held.past_retention,
    }
    return fields if held.oldest is None else fields | {"oldest": rendered(held.oldest)}


def _kept(kind: Kind, retention: Retentions) -> str:
    if kind is Kind.REVISIONS:
        return f"newest {retention.revisions}" if retention.revisions else "all"
    time = retention.time(kind)
    for unit, length in UNITS.items():
        if time and time % length == timedelta():
            return f"{time // length}{unit}"
    return f"{time.total_seconds():g}s" if time else "for ever"
