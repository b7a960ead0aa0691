"""Commands on whole databases: `migrate`, `index`, `copy`, `stats --storage`, `doctor`, `scan`."""

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import click

from ...engine.engine import Engine
from ...errors import Refusal, Unavailable
from ...memory.access import Caller, TenantId, tenant_id
from ...memory.damage import Finding, Status, has_failed, worst_first
from ...memory.redactor import Redaction, exceptions_in
from ...memory.space import Held, Kind, Retentions
from ...operations import scan as scans
from ...operations.doctor import DoctorContext, apply_fixes, findings_of
from ...operations.files.service_lock import service_lock
from ...settings import Settings, settings
from ...sqlite.migrate import Plan, migrated, planned
from ...sqlite.tenants import tenant_file, tenants_of
from .. import output as out, place as backends, target as o
from ..program import command


@command(*o.setting_options(), o.flag("--dry-run", help="Show what would be done."))
def migrate(dry_run: bool, **flags: str | None) -> None:
    """Upgrade the databases of all tenants, without serving.

    Refused while a service has them open. Exits with 1 if an upgrade failed.
    """
    chosen = backends.settings_of_files(flags)
    tenants = tenants_of(chosen.db_path)
    if not tenants:
        raise Unavailable(f"There is no database at {chosen.db_path}.")
    results = []
    lock = nullcontext() if dry_run else service_lock(chosen.db_path)
    with lock, out.progress_bar("Migrating") as progress:
        for number, tenant in enumerate(tenants, start=1):
            results.append(_upgraded(chosen, tenant, is_dry=dry_run))
            progress(number, len(tenants))
    for tenant, (line, _) in zip(tenants, results, strict=True):
        click.echo(f"{tenant}: {line}")
    sys.exit(0 if all(is_good for _, is_good in results) else 1)


@command(
    *o.setting_options(), o.TENANT,
    o.flag("--check", help="Compare every word, not only the number of rows."),
    o.flag("--rebuild", help="Rebuild the whole index, or with --check only what is wrong."),
)  # fmt: skip
def index(tenant: str | None, check: bool, rebuild: bool, **flags: str | None) -> None:
    """Check each partition of the full-text index, even while others use the file.

    Exits with 1 if a partition does not match the memories and was not repaired.
    """

    async def check_all(engine: Engine, caller: Caller) -> list[tuple[str, bool]]:
        results, drifts = [], await engine.maintenance.drifts(caller)
        with out.progress_bar("Rebuilding" if rebuild else "Examining") as progress:
            for done, (partition, drift) in enumerate(drifts.items(), start=1):
                line, is_good = "exact" if check else "matches the memories", not drift
                if drift:
                    line = f"differs from the memories in {out.counted(drift, 'row')}"
                elif check and not await engine.maintenance.is_exact(caller, partition):
                    line, is_good = "its words differ from those of the memories", False
                if rebuild and not (check and is_good):
                    await engine.maintenance.rebuild(caller, partition)
                    line, is_good = "rebuilt", True
                results.append((f"partition {partition}: {line}", is_good))
                progress(done, len(drifts))
        return results

    backend = backends.backend_of(flags)
    results = backends.on_tenant(backend, backends.tenant_of(tenant), check_all)
    for line, _ in results:
        click.echo(line)
    sys.exit(0 if all(is_good for _, is_good in results) else 1)


def _upgraded(settings: Settings, tenant: TenantId, *, is_dry: bool) -> tuple[str, bool]:
    path = tenant_file(settings.db_path, tenant)
    try:
        plan = planned(path)
        if is_dry:
            return _summary(plan), True
        migrated(path, backends.now())
        return f"{_summary(plan)}{' Done.' if plan.is_due else ''}", True
    except Refusal as refusal:
        return f"refused{'' if is_dry else ', and left unchanged'}. {refusal}", False


def _summary(plan: Plan) -> str:
    if not plan.is_due:
        return f"has format {plan.before}, the newest; there is nothing to do."
    if plan.before == plan.after:
        change = f"stays at format {plan.after}"
    elif plan.is_original:
        change = f"is upgraded from the original's format to {plan.after}, after a copy is made"
    else:
        change = f"is upgraded from format {plan.before} to {plan.after}"
    return f"{change}, and its index is rebuilt."


POSTGRESQL = "postgresql"
URL_PARTS = ("://", "password=", "host=", "dbname=")


@command(
    *o.setting_options("db_path", "keys_file"),
    o.to_option(
        metavar="TARGET",
        help="`postgresql`, for the database of MEMORY_DATABASE_URL; or a file, from that "
        "database.",
    ),
    o.TENANTS, o.json_option(),
)  # fmt: skip
def copy(to: str, tenants: Sequence[str], **files: str | None) -> None:
    """Copy all tenants with all their data, from SQLite to PostgreSQL or back.

    Only MEMORY_DATABASE_URL takes the URL. The target must be empty. Each tenant is copied
    completely or not at all: repeat the command if it was interrupted. Stop the services on
    both sides first: the copy is refused while one runs, because later saves would not be copied.
    """
    if to != POSTGRESQL:
        if any(part in to for part in URL_PARTS):
            raise out.CommandRefused(
                "A URL on the command line shows its password in the process list: put it into "
                "MEMORY_DATABASE_URL, and use --to postgresql."
            )
        files["db_path"] = to
    chosen, tenant_ids = settings(flags=files), [tenant_id(it) for it in tenants]
    if chosen.database_url is None:
        raise out.CommandRefused("MEMORY_DATABASE_URL is not set; it must name the database.")
    # Imported here: the driver is an extra, and reading the setting reports its absence.
    from ...operations.copying import copied  # noqa: PLC0415

    backends.require_local_files(chosen)
    # psycopg would log errors that are also raised.
    with o.silent(logging.getLogger("psycopg")), out.progress_bar("Copying") as progress:
        copies = [*copied(
            chosen, tenant_ids, to_files=to != POSTGRESQL, at=backends.now(), by=backends.user(),
            progress=progress,
        )]  # fmt: skip
    results = [
        {"tenant": it.tenant, "was_there": it.was_there,
         "rows": {name: count for name, (count, _) in it.tally.items()}}
        for it in copies
    ]  # fmt: skip
    if out.has_flag("json"):
        click.echo(json.dumps({"tenants": results}))
        return
    for it in copies:
        verb = "was already copied" if it.was_there else "is copied"
        count = out.counted(sum(count for count, _ in it.tally.values()), "row")
        click.echo(f"{it.tenant}: {verb}, {count}, equal on both sides.")
        tables = [(name, *its) for name, its in it.tally.items() if its[0]]
        out.print_table(("TABLE", "ROWS", "DIGEST"), tables)


HEADINGS = ("KIND", "ROWS", "KEPT", "NEXT SWEEP")
SIZES = ("database", "index", "free", "log", "copies")
DAY = timedelta(days=1)


def print_storage(params: dict[str, Any]) -> None:
    target = o.Target.of(params)
    if target.url is not None:
        raise click.UsageError("--storage reads files: use --db on the service's machine.")
    backend, tenant = backends.usable(target.db, target.tenant, may_make=False)
    retention, at = backend.settings.retention, backends.now()
    tenants = list[dict[str, Any]]()
    for each in [tenant] if target.tenant else backend.tenants():
        backends.require_usable(backend, each)
        stats = backend.stats(each, at)
        sizes = {f"{name}_bytes": getattr(stats, name) for name in SIZES}
        tenants.append({"tenant": each, **sizes, "kept": _rows(stats.held, retention)})
    [audit] = _rows([backend.audit.measured(retention.until(Kind.AUDIT, at))], retention)
    if out.has_flag("json"):
        out.print_json({"tenants": tenants, "audit": audit})
        return
    for it in tenants:
        texts = [f"{name} {out.size(it[f'{name}_bytes'])}" for name in SIZES]
        out.show(f"{it['tenant']}: {', '.join(texts)}", bold=True)
        _print_kept(it["kept"])
    out.show("audit of all tenants", bold=True)
    _print_kept([audit])


def _print_kept(rows: Sequence[out.Record]) -> None:
    cells = [(it["kind"], it["rows"], it["kept_for"], it["next_sweep"]) for it in rows]
    out.print_table(HEADINGS, cells)


def _rows(kept: Sequence[Held], retention: Retentions) -> list[dict[str, Any]]:
    return [
        {"kind": it.kind.value, "rows": it.rows, "kept_for": _kept_for(it.kind, retention),
         "next_sweep": it.past_retention}
        for it in kept
    ]  # fmt: skip


def _kept_for(kind: Kind, retention: Retentions) -> str:
    if kind is Kind.REVISIONS:
        return f"newest {retention.revisions}" if retention.revisions else "all"
    time = retention.time(kind)
    return f"{time / DAY:g}d" if time else "for ever"


COLORS = {Status.FAILED: "red", Status.WARNING: "yellow"}
WIDEST = len("not fixed")


@command(
    *o.setting_options(),
    o.option("--tenant", metavar="NAME",
             help="Only this tenant's database. [default: every tenant's]"),
    o.flag("--thorough", help="Compare every index, row by row and word by word."),
    o.flag("--fix", help="Fix what can be fixed safely; without this, nothing is changed."),
    o.json_option(help="Print one JSON document."),
)  # fmt: skip
def doctor(tenant: str | None, thorough: bool, fix: bool, **flags: str | None) -> None:
    """Check the settings, the files and the database of each tenant, and report problems.

    A service may be running. Exits with 1 if a check failed; warnings alone exit with 0.
    """
    context = DoctorContext(
        settings=backends.chosen_settings(flags), environment=os.environ, now=backends.now(),
        tenant=None if tenant is None else tenant_id(tenant), is_thorough=thorough,
    )  # fmt: skip
    with out.progress_bar("Examining") as bar:
        findings = findings_of(context, bar)
    fixes = list(apply_fixes(findings)) if fix else []
    if fixes:
        with out.progress_bar("Examining again") as bar:
            findings = findings_of(replace(context, now=backends.now()), bar)
    out.print_result(_document(findings, fixes), "\n".join(_lines(findings, fixes)))
    sys.exit(1 if has_failed(findings) else 0)


def _lines(findings: Sequence[Finding], fixes: Sequence[Finding]) -> Iterator[str]:
    for finding in fixes:
        kind = "fixed" if finding.status is Status.OK else "not fixed"
        yield f"{kind:{WIDEST}}  {_sentence(finding)}"
    for finding in worst_first(findings):
        label = click.style(f"{finding.status:{WIDEST}}", fg=COLORS.get(finding.status))
        yield f"{label}  {_sentence(finding)}"
    counts = Counter(finding.status for finding in findings)
    if not (counts[Status.FAILED] or counts[Status.WARNING]):
        yield "Nothing is wrong."
        return
    failures = out.counted(counts[Status.FAILED], "failure")
    text = f"{failures}, {out.counted(counts[Status.WARNING], 'warning')}"
    fixable = sum(finding.is_fixable for finding in findings)
    yield f"{text}; --fix can fix {fixable} of them." if fixable else f"{text}."


def _sentence(finding: Finding) -> str:
    where = f" ({finding.tenant})" if finding.tenant else ""
    return out.one_line(f"{finding.code}{where}: {finding.sentence} {finding.remedy}")


def _document(findings: Sequence[Finding], fixes: Sequence[Finding]) -> dict[str, object]:
    counts = Counter(finding.status for finding in findings)
    names = "code tenant status sentence remedy is_fixable"
    return {
        "is_well": not has_failed(findings),
        **{status.value: counts[status] for status in Status},
        "findings": [out.parts(it, names) for it in worst_first(findings)],
        "done": [out.parts(it, names) for it in fixes],
    }


@command(
    *o.setting_options(),
    o.TENANT,
    o.flag("--redact", help="Remove the secrets; without this, nothing is changed."),
    o.json_option(help="Print a line of JSON for each place."),
)
def scan(tenant: str | None, redact: bool, **flags: str | None) -> None:
    """Find secrets in stored data: in live and deleted memories, revisions and summaries.

    A service may be using the file. Exits with 1 if secrets were found and not removed.
    """
    backend = backends.backend_of(flags)
    scanned = partial(_scanned, backend, redact)
    findings = backends.on_tenant(backend, backends.tenant_of(tenant), scanned)
    lines = _secrets(findings, redact=redact)
    if out.has_flag("json"):
        names = "kinds in_names"
        lines = (json.dumps({**it.where, **out.parts(it, names)}) for it in findings)
    for line in lines:
        click.echo(line)
    sys.exit(1 if any(finding.in_names or not redact for finding in findings) else 0)


async def _scanned(
    backend: backends.Backend, redact: bool, engine: Engine, caller: Caller
) -> list[scans.SecretFinding]:
    rules = Redaction(exceptions_in(backend.settings.redaction_file)).rules(caller)
    findings: list[scans.SecretFinding] = []
    done, total = 0, await engine.read(caller, scans.size)
    with out.progress_bar("Scanning") as advance:
        async for scanned in scans.pages(engine, caller, rules, is_redacting=redact):
            findings += scanned.findings
            done += scanned.rows
            advance(done, total)
    if redact and any(finding.kinds for finding in findings):
        out.say("overwriting the removed bytes")
        if remaining := await backends.finish_scrub(backend, engine, caller):
            out.say(remaining)
    return findings


def _secrets(findings: list[scans.SecretFinding], *, redact: bool) -> Iterator[str]:
    for finding in findings:
        kinds = [f"{kind} {count}" for kind, count in finding.kinds.items()]
        names = [f"{kind} in a name {count}" for kind, count in finding.in_names.items()]
        steps = reversed([f"{kind} {name}" for kind, name in finding.where.items()])
        where = " of ".join(steps).replace(" of project ", " of ")
        yield f"{where}: {', '.join(kinds + names)}"
    total = sum(sum(finding.kinds.values()) for finding in findings)
    left = sum(sum(finding.in_names.values()) for finding in findings)
    done = "removed" if redact else "found; --redact removes them"
    yield f"{out.counted(total, 'secret')} {done}" if total else "no secrets found in texts"
    if left:
        yield f"{left} in names and paths remain: they cannot be removed"
