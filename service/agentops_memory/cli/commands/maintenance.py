"""`migrate` and `index`: databases brought up to date, and their index looked at and mended."""

import logging
import sys
from functools import partial

import click

from ...engine.engine import Engine
from ...engine.maintenance import Maintenance
from ...errors import Refusal, Unavailable
from ...memory.model.access import Caller, TenantId, tenant_id
from ...operations.files.service_lock import service_lock
from ...settings.settings import Settings
from ...sqlite.schema.migrate import Plan, migrated, planned, tried
from ...sqlite.tenants import tenant_file, tenants_of
from ..catalog import command
from ..invocation import now
from ..options import setting_options, tenant_option
from ..output import size
from ..place import on_tenant, place_of, settings_of_files
from ..target import silent


@command()
@setting_options()
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and try it on a copy.")
def migrate(dry_run: bool, **flags: str | None) -> None:
    """Bring the databases of all tenants up to date, without serving.

    Refused while a service has them. Exits with 1 if one cannot be brought up to date.
    """
    chosen = settings_of_files(flags)
    tenants = tenants_of(chosen.db_path)
    if not tenants:
        raise Unavailable(f"There is no database at {chosen.db_path}.")
    if dry_run:
        done = [_is_planned(chosen, tenant) for tenant in tenants]
    else:
        with service_lock(chosen.db_path):
            done = [_is_done(chosen, tenant) for tenant in tenants]
    sys.exit(0 if all(done) else 1)


@command()
@setting_options()
@tenant_option("Whose index.")
@click.option("--check", is_flag=True, help="Compare every word, not only the number of rows.")
@click.option(
    "--rebuild", is_flag=True, help="Build anew: all, or with --check what is found to be wrong."
)
def index(tenant: str, check: bool, rebuild: bool, **flags: str | None) -> None:
    """Look at each partition of the full-text index, while others use the file.

    Exits with 1 if one is out of line with the memories and stays so.
    """
    is_good = on_tenant(
        place_of(flags), tenant_id(tenant), partial(_is_good, check=check, rebuild=rebuild)
    )
    sys.exit(0 if is_good else 1)


def _is_planned(settings: Settings, tenant: TenantId) -> bool:
    try:
        plan = planned(tenant_file(settings.db_path, tenant), settings.recall)
        click.echo(f"{tenant}: {_summary(plan)}")
        if plan.is_due:
            click.echo(f"{tenant}: {_trial(plan, settings)}")
    except Refusal as refusal:
        click.echo(f"{tenant}: refused. {refusal}")
        return False
    return plan.has_room


def _is_done(settings: Settings, tenant: TenantId) -> bool:
    path = tenant_file(settings.db_path, tenant)
    try:
        plan = planned(path, settings.recall)
        if plan.is_due and not plan.has_room:
            raise Unavailable(_room(plan))
        migrated(path, now(), settings.recall)
    except Refusal as refusal:
        click.echo(f"{tenant}: refused, and left as it was. {refusal}")
        return False
    click.echo(f"{tenant}: {_summary(plan)}{' Done.' if plan.is_due else ''}")
    return True


def _summary(plan: Plan) -> str:
    if not plan.is_due:
        return f"has format {plan.before}, the newest. There is nothing to do."
    if plan.before == plan.after:
        what = f"stays at format {plan.after}"
    elif plan.is_original:
        what = f"goes from the original's format to {plan.after}, after a copy of it was made"
    else:
        what = f"goes from format {plan.before} to {plan.after}"
    index = ", and its index is built anew" if plan.makes_index else ""
    return f"{what}{index}. {_room(plan)}"


def _room(plan: Plan) -> str:
    verdict = "" if plan.has_room else " That is too little."
    return f"It needs up to {size(plan.needed)}, and {size(plan.free)} are free.{verdict}"


def _trial(plan: Plan, settings: Settings) -> str:
    if not plan.has_room_for_trial:
        return "not tried, as there is no room for a copy."
    with silent(logging.getLogger("agentops_memory")):
        took = tried(plan, now(), settings.recall)
    return f"tried on a copy, which took {took.total_seconds():.1f} s and is sound."


async def _is_good(engine: Engine, caller: Caller, *, check: bool, rebuild: bool) -> bool:
    are_good = []
    for partition, drift in (await engine.maintenance.drifts(caller)).items():
        line, is_good = await _checked(engine.maintenance, caller, partition, drift, check, rebuild)
        click.echo(f"partition {partition}: {line}")
        are_good.append(is_good)
    return all(are_good)


async def _checked(
    maintenance: Maintenance, caller: Caller, partition: int, drift: int, check: bool, rebuild: bool
) -> tuple[str, bool]:
    is_good = not drift and (not check or await maintenance.is_exact(caller, partition))
    if rebuild and not (check and is_good):
        await maintenance.rebuild(caller, partition)
        return "built anew", True
    if is_good:
        return "exact" if check else "in line", True
    if drift:
        return f"{drift} rows out of line", False
    return "its words are not those of the memories", False
