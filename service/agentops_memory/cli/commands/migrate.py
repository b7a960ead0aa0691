"""`migrate`: the databases of all tenants brought up to date, or what that would do, told first."""

import logging

import click

from ...compose import utc_now
from ...domain.errors import Refusal, Unavailable
from ...domain.model.access import TenantId
from ...files.service_lock import service_lock
from ...settings.settings import Settings
from ...storage.sqlite.engine.tenant_files import tenants_of
from ...storage.sqlite.engine.tenants import tenant_file
from ...storage.sqlite.schema.migrate import migrated
from ...storage.sqlite.schema.migration_plan import Plan, planned, tried
from ..output import size
from ..target import silent


def run(settings: Settings, *, dry_run: bool) -> bool:
    """Print a line for each tenant; whether all are up to date, or with `dry_run` would be.

    Refused with InUse while a service has the databases, unless nothing is to be changed.
    """
    tenants = tenants_of(settings.db_path)
    if not tenants:
        raise Unavailable(f"There is no database at {settings.db_path}.")
    if dry_run:
        return sum(_is_planned(settings, tenant) for tenant in tenants) == len(tenants)
    with service_lock(settings.db_path):
        return sum(_is_done(settings, tenant) for tenant in tenants) == len(tenants)


def _is_planned(settings: Settings, tenant: TenantId) -> bool:
    try:
        plan = planned(tenant_file(settings.db_path, tenant), settings.recall)
        click.echo(f"{tenant}: {_told(plan)}")
        if plan.is_due:
            click.echo(f"{tenant}: {_tried(plan, settings)}")
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
        migrated(path, utc_now(), settings.recall)
    except Refusal as refusal:
        click.echo(f"{tenant}: refused, and left as it was. {refusal}")
        return False
    click.echo(f"{tenant}: {_told(plan)}{' Done.' if plan.is_due else ''}")
    return True


def _told(plan: Plan) -> str:
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


def _tried(plan: Plan, settings: Settings) -> str:
    if not plan.has_room_for_trial:
        return "not tried, as there is no room for a copy."
    with silent(logging.getLogger("agentops_memory")):
        took = tried(plan, utc_now(), settings.recall)
    return f"tried on a copy, which took {took.total_seconds():.1f} s and is sound."
