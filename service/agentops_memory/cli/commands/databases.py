"""`migrate`, `index`, `copy`, `stats --storage`: what is done with whole databases."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from agentops_memory_client.contract.models import Progress

from ...engine.engine import Engine
from ...engine.maintenance import Maintenance
from ...errors import Refusal, Unavailable
from ...memory.access import Caller, TenantId, tenant_id
from ...memory.retention import WHAT, Held, Kind, Retentions, StorageStats
from ...operations.copied_files import CopyRefused
from ...operations.files.keys import KeyFile
from ...operations.files.service_lock import service_lock
from ...recall.instants import rendered
from ...settings.settings import Settings, settings
from ...sqlite.migrate import Plan, migrated, planned, tried
from ...sqlite.tenants import tenant_file, tenants_of
from ..catalog import command
from ..options import flag, json_option, scope_option, setting_options, tenant_option, to_option
from ..output import counted, file_errors, print_table, progress_bar, show, size, watched
from ..place import now, on_tenant, place_of, require_local_files, settings_of_files, usable, user
from ..print_results import parts, print_json
from ..target import Target, silent

if TYPE_CHECKING:
    from ...operations.copying import Copied


@command()
@setting_options()
@flag("--dry-run", help="Show what would be done, and try it on a copy.")
def migrate(dry_run: bool, **flags: str | None) -> None:
    """Upgrade the databases of all tenants, without serving.

    Refused while a service has them open. Exits with 1 if an upgrade failed.
    """
    chosen = settings_of_files(flags)
    tenants = tenants_of(chosen.db_path)
    if not tenants:
        raise Unavailable(f"There is no database at {chosen.db_path}.")
    work = partial(_planned if dry_run else _done, chosen)
    is_good = True
    with nullcontext() if dry_run else service_lock(chosen.db_path):
        for said, is_done in watched("Migrating", tenants, work):
            click.echo(said)
            is_good = is_good and is_done
    sys.exit(0 if is_good else 1)


@command()
@setting_options()
@tenant_option("Whose index.")
@flag("--check", help="Compare every word, not only the number of rows.")
@flag("--rebuild", help="Rebuild the whole index, or with --check only what is wrong.")
def index(tenant: str, check: bool, rebuild: bool, **flags: str | None) -> None:
    """Check each partition of the full-text index, even while others use the file.

    Exits with 1 if one does not match the memories and was not repaired.
    """
    is_good = on_tenant(
        place_of(flags), tenant_id(tenant), partial(_is_good, check=check, rebuild=rebuild)
    )
    sys.exit(0 if is_good else 1)


def _planned(settings: Settings, tenant: TenantId) -> tuple[str, bool]:
    lines, is_possible = [], False
    try:
        plan = planned(tenant_file(settings.db_path, tenant), settings.recall)
        lines.append(_summary(plan))
        if plan.is_due and not plan.has_room_for_trial:
            lines.append("not tried: there is not enough space for a copy.")
        elif plan.is_due:
            with silent(logging.getLogger("agentops_memory")):
                took = tried(plan, now(), settings.recall)
            lines.append(f"tested on a copy in {took.total_seconds():.1f} s and is sound.")
        is_possible = plan.has_room
    except Refusal as refusal:
        lines.append(f"refused. {refusal}")
    return "\n".join(f"{tenant}: {line}" for line in lines), is_possible


def _done(settings: Settings, tenant: TenantId) -> tuple[str, bool]:
    path = tenant_file(settings.db_path, tenant)
    try:
        plan = planned(path, settings.recall)
        if plan.is_due and not plan.has_room:
            raise Unavailable(_room(plan))
        migrated(path, now(), settings.recall)
    except Refusal as refusal:
        return f"{tenant}: refused, and left unchanged. {refusal}", False
    return f"{tenant}: {_summary(plan)}{' Done.' if plan.is_due else ''}", True


def _summary(plan: Plan) -> str:
    if not plan.is_due:
        return f"has format {plan.before}, the newest; there is nothing to do."
    if plan.before == plan.after:
        what = f"stays at format {plan.after}"
    elif plan.is_original:
        what = f"is upgraded from the original's format to {plan.after}, after a copy is made"
    else:
        what = f"is upgraded from format {plan.before} to {plan.after}"
    index = ", and its index is rebuilt" if plan.makes_index else ""
    return f"{what}{index}. {_room(plan)}"


def _room(plan: Plan) -> str:
    verdict = "" if plan.has_room else " That is not enough."
    return f"It needs up to {size(plan.needed)}, and {size(plan.free)} are free.{verdict}"


async def _is_good(engine: Engine, caller: Caller, *, check: bool, rebuild: bool) -> bool:
    are_good, drifts = [], await engine.maintenance.drifts(caller)
    label = "Rebuilding" if rebuild else "Examining"
    for done, (number, drift) in enumerate(drifts.items()):
        with progress_bar(label, place=(done, len(drifts))):
            line, is_good = await _checked(
                engine.maintenance, caller, number, drift, check, rebuild
            )
        click.echo(f"partition {number}: {line}")
        are_good.append(is_good)
    return all(are_good)


async def _checked(
    maintenance: Maintenance, caller: Caller, partition: int, drift: int, check: bool, rebuild: bool
) -> tuple[str, bool]:
    is_good = not drift and (not check or await maintenance.is_exact(caller, partition))
    if rebuild and not (check and is_good):
        await maintenance.rebuild(caller, partition)
        return "rebuilt", True
    if is_good:
        return "exact" if check else "matches the memories", True
    if drift:
        return f"differs from the memories in {counted(drift, 'row')}", False
    return "its words differ from those of the memories", False


POSTGRESQL = "postgresql"
URL_PARTS = ("://", "password=", "host=", "dbname=")
OF_TABLES, OF_PROJECTS = ("TABLE", "ROWS"), ("PROJECT", "DIGEST")
NO_PROJECT = "(none)"


@command()
@setting_options("db_path", "keys_file")
@to_option(
    "TARGET",
    "`postgresql`, for the database of MEMORY_DATABASE_URL; or a file, from that database.",
)
@scope_option
@json_option()
def copy(to: str, tenants: Sequence[str], as_json: bool, **files: str | None) -> None:
    """Copy all tenants with all their data, from SQLite to PostgreSQL or back.

    Only MEMORY_DATABASE_URL takes the URL. The target must be empty. Each tenant is copied
    completely or not at all: repeat the command if it was interrupted. Stop the services on
    both sides first; it refuses while one runs, because later saves would not be copied.
    """
    if to != POSTGRESQL:
        if any(part in to for part in URL_PARTS):
            raise CopyRefused(
                "A URL on the command line shows its password in the process list: put it into "
                "MEMORY_DATABASE_URL, and use --to postgresql."
            )
        files["db_path"] = to
    chosen, named = settings(flags=files), [tenant_id(it) for it in tenants]
    copied = []
    quiet = silent(logging.getLogger("psycopg"))  # it tells of what failed twice
    bars: list[Progress | None] = []

    def tell(done: int, of: int) -> None:
        if bar := bars[-1]:
            bar(done, of)

    with file_errors(), quiet:
        every = _copied(chosen, to, named, tell)
        while it := _next(every, bars):
            projects = it.tally.digests.items()
            digests = [{"project": name, "digest": digest} for name, digest in projects]
            rows = parts(it, "tenant was_there rows=tally.counts")
            copied.append({**rows, "projects": digests})
            if not as_json:
                _print_copied(it)
    if as_json:
        click.echo(json.dumps({"tenants": copied}))


def _next(every: Iterator["Copied"], bars: list[Progress | None]) -> "Copied | None":
    with progress_bar("Copying", place=(0, 1)) as bar:
        bars.append(bar)
        return next(every, None)


def _copied(
    settings: Settings, to: str, named: Sequence[Any], progress: Callable[[int, int], None]
) -> Iterator["Copied"]:
    if settings.database_url is None:
        raise CopyRefused("MEMORY_DATABASE_URL is not set; it must name the database.")
    # Not at the top: the driver is an extra, and the setting reports its absence.
    from ...operations.copied_files import Files  # noqa: PLC0415
    from ...operations.copying import to_database, to_files  # noqa: PLC0415

    require_local_files(settings)
    url, keys = settings.database_url, KeyFile(settings.keys_file, settings.audit_file)
    files = Files(
        path=settings.db_path, keys=keys, audit=settings.audit_file, features=settings.recall
    )
    if to == POSTGRESQL:
        return to_database(files, url, named, at=now(), by=user(), progress=progress)
    return to_files(url, files, named, at=now(), by=user(), progress=progress)


def _print_copied(it: "Copied") -> None:
    counts, digests = it.tally.counts, it.tally.digests
    rows, tables = sum(counts.values()), sum(map(bool, counts.values()))
    verb = "was already copied" if it.was_there else "is copied"
    held = f"{counted(rows, 'row')} in {counted(tables, 'table')}"
    click.echo(f"{it.tenant}: {verb}, {held}, equal on both sides.")
    if rows:
        print_table(OF_TABLES, [(name, count) for name, count in counts.items() if count])
        named = ((NO_PROJECT if it is None else it, digest) for it, digest in digests.items())
        print_table(OF_PROJECTS, [*named])


HEADINGS = ("KIND", "ROWS", "ABOUT", "OLDEST", "KEPT", "NEXT SWEEP")
NONE = "-"
BYTES = (
    "database_bytes=database index_bytes=index free_bytes=free log_bytes=log copies_bytes=copies"
)
UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


def print_storage(where: Mapping[str, str | None], *, as_json: bool) -> None:
    """Print what there is of each tenant, or of the one that is named, and of the audit file."""
    target = Target.of(where)
    if target.url is not None:
        raise click.UsageError("--storage reads files: use --db on the service's machine.")
    with file_errors():
        place, tenant = usable(target.flags, target.tenant, may_make=False)
        retention, at = place.settings.retention, now()
        every: dict[TenantId, StorageStats] = {}
        for each in [tenant] if target.tenant else place.tenants():
            place.require_usable(each)
            every[each] = place.stats(each, at)
        audit = place.audit.measured(retention.until(Kind.AUDIT, at))
    if as_json:
        tenants = [
            {"tenant": tenant, **parts(found, BYTES), "kept": _rows(found.held, retention)}
            for tenant, found in every.items()
        ]
        print_json({"tenants": tenants, "audit": _rows([audit], retention)[0]})
        return
    for tenant, found in every.items():
        show(f"{tenant}: {size(found.database)}", bold=True)
        show(
            f"including {size(found.index)} of index and {size(found.free)} free; "
            f"in addition {size(found.log)} of log and {size(found.copies)} of copies",
            indent=2,
        )
        _print_held(found.held, retention)
    show(f"audit file of all tenants: {size(audit.size)}", bold=True)
    _print_held([audit], retention)


def _print_held(held: Sequence[Held], retention: Retentions) -> None:
    rows = [
        (it["kind"], f"{it['rows']:,}", size(it["bytes"]), it.get("oldest", NONE), it["kept_for"],
         f"{it['next_sweep']:,}" if it["next_sweep"] else NONE)
        for it in _rows(held, retention)
    ]  # fmt: skip
    print_table(HEADINGS, rows)


def _rows(held: Sequence[Held], retention: Retentions) -> list[dict[str, Any]]:
    return [
        {"kind": it.kind.value, "what": WHAT[it.kind], **parts(it, "rows bytes=size"),
         "kept_for": _kept_for(it.kind, retention), "next_sweep": it.past_retention,
         **({} if it.oldest is None else {"oldest": rendered(it.oldest)})}
        for it in held
    ]  # fmt: skip


def _kept_for(kind: Kind, retention: Retentions) -> str:
    if kind is Kind.REVISIONS:
        return f"newest {retention.revisions}" if retention.revisions else "all"
    time = retention.time(kind)
    for unit, length in UNITS.items():
        if time and time % length == timedelta():
            return f"{time // length}{unit}"
    return f"{time.total_seconds():g}s" if time else "for ever"
