"""`migrate`: the databases of all tenants brought up to date, or first what that would do."""

import logging
import sys

import click

from ...domain.errors import Refusal, Unavailable
from ...domain.model.access import TenantId
from ...files.service_lock import service_lock
from ...settings.settings import Settings, settings
from ...storage.sqlite.engine.tenant_files import tenants_of
from ...storage.sqlite.engine.tenants import tenant_file
from ...storage.sqlite.schema.migrate import migrated
from ...storage.sqlite.schema.migration_plan import Plan, planned, tried
from ..options import setting_options
from ..output import size
from ..service_files import now
from ..target import silent


@click.command()
@setting_options()
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and try it on a copy.")
def migrate(dry_run: bool, **flags: str | None) -> None:
    """Bring the databases of all tenants up to date, without serving.

    Refused while a service has them. Exits with 1 if one cannot be brought up to date.
    """
    chosen = settings(flags=flags)
    tenants = tenants_of(chosen.db_path)
    if not tenants:
        raise Unavailable(f"There is no database at {chosen.db_path}.")
    if dry_run:
        done = [_is_planned(chosen, tenant) for tenant in tenants]
    else:
        with service_lock(chosen.db_path):
            done = [_is_done(chosen, tenant) for tenant in tenants]
    sys.exit(0 if all(done) else 1)


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
