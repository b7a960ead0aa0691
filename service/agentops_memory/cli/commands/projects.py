"""`projects`: the projects of a tenant, listed, renamed, merged and erased at the terminal."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...engine.callbacks import noop
from ...memory.erasure import Erasure, receipt_of
from ...memory.model.access import Caller, tenant_id
from ...memory.model.space import Project, project_name
from ...memory.projects import Extent, Listed, Projects
from ...recall.text.instants import rendered
from ...recall.text.normalization import clean
from ...recall.text.visible import printable
from ..catalog import group
from ..options import (
    Command,
    dry_run_option,
    json_option,
    service_options,
    setting_options,
    tenant_option,
    without_route,
    yes_option,
)
from ..output import confirm, progress_bar
from ..place import Place, finish, on_tenant, place_of
from ..print_results import print_records
from ..target import Target

if TYPE_CHECKING:
    from ..project_routes import ProjectRoutes

T = TypeVar("T")

RECEIPT = (
    "id", "kind", "project", "observations", "revisions", "sessions", "erased_at", "bytes_gone_at",
    "copies_not_reached",
)  # fmt: skip
HEADINGS = ("PROJECT", "OBSERVATIONS", "SESSIONS", "CHANGED")


@group()
def projects() -> None:
    """List, rename, merge and erase the projects of a database file.

    A service may be running on the file meanwhile; it sees what is changed
    from the next request on. Every change adds a line to the audit file.
    With --url the service itself lists and erases.
    """


def _of_a_tenant(command: Command) -> Command:
    return setting_options("db_path")(tenant_option("Whose projects.")(command))


@projects.command("list", short_help="Show the projects.")
@service_options
@_of_a_tenant
@json_option()
def list_(as_json: bool, url: str | None, key_file: str | None, **where: str | None) -> None:
    """Show the projects with their live observations and their newest change.

    A service does not say when they changed.
    """
    if service := Target.of_operator(url, key_file):
        shown = _on_service(service, lambda routes: routes.list_projects())
    else:
        shown = [*map(_listed, _run(where, lambda projects, caller: projects.list(caller)))]
    print_records(shown, HEADINGS, as_json=as_json)


@projects.command(short_help="Give a project another name.")
@without_route
@_of_a_tenant
@click.argument("project")
@click.argument("new")
@dry_run_option
@json_option()
def rename(project: str, new: str, dry_run: bool, as_json: bool, **where: str | None) -> None:
    """Give PROJECT the name NEW, which nothing may have yet. Ids and sessions stay."""
    old, name = _name(project), _name(new)
    rename = Projects.plan_rename if dry_run else Projects.rename
    plan = _run(where, lambda projects, caller: rename(projects, caller, old, name))
    fields = {"project": old, "to": name, **_moved(plan.extent)}
    _print_done(fields, f"rename {old} to {name}", dry_run=dry_run, as_json=as_json)


@projects.command(short_help="Move all of a project into another.")
@without_route
@_of_a_tenant
@click.argument("project")
@click.argument("into")
@dry_run_option
@yes_option
@json_option()
def merge(
    project: str, into: str, dry_run: bool, is_meant: bool, as_json: bool, **where: str | None
) -> None:
    """Move the observations and sessions of PROJECT into the project INTO.

    Where both have an observation at one topic key, the text that was updated
    later stays, and the other is a revision. It is one transaction: saves wait
    for it, two seconds for 10,000 observations.
    """
    source, target = _name(project), _name(into)
    plan = _run(where, lambda it, caller: it.plan_merge(caller, source, target))
    if not dry_run:
        if not is_meant:
            _ask(f"merge {source} into {target}", _moved(plan.extent))
        plan = _run(where, lambda it, caller: it.merge(caller, source, target))
    counts = {**_moved(plan.extent), "same_keys": plan.same_keys}
    fields = {"project": source, "into": target, **counts}
    _print_done(fields, f"merge {source} into {target}", dry_run=dry_run, as_json=as_json)


@projects.command(short_help="Erase a project for good.")
@service_options
@_of_a_tenant
@click.argument("project")
@dry_run_option
@yes_option
@json_option()
def erase(
    *,
    project: str,
    dry_run: bool,
    is_meant: bool,
    as_json: bool,
    url: str | None,
    key_file: str | None,
    **where: str | None,
) -> None:
    """Erase PROJECT: its observations with their history, its sessions, its global memories.

    Others save meanwhile. At the end nothing of it is in the file, and the
    receipt says what went. One that was interrupted goes on when it is repeated.
    """
    name, service = _name(project), Target.of_operator(url, key_file)
    if dry_run or not is_meant:
        if service:
            plan = _on_service(service, lambda routes: routes.plan_erasure(name))
        else:
            extent = _run(where, lambda it, caller: it.plan_erasure(caller, name))
            plan = {"project": name, **_removed(extent)}
        if dry_run:
            _print_done(plan, f"erase {name}", dry_run=True, as_json=as_json)
            return
        _ask(f"erase {name} for good", plan)
    if service:
        answer = _on_service(service, lambda routes: routes.erase(name))
        receipt = {field: answer.get(field) for field in RECEIPT}
        later = f"`GET /erasures/{receipt['id']}` says when its bytes have left the storage."
        still = None if receipt["bytes_gone_at"] else later
    else:
        erased, still = _run(where, partial(_erased, place_of(where), name))
        receipt = _shown(erased)
    if as_json:
        click.echo(json.dumps(receipt))
    else:
        _print_receipt(receipt, still)


async def _erased(
    place: Place, project: Project, projects: Projects, caller: Caller
) -> tuple[Erasure, str | None]:
    """Erase a project, and wait until its bytes have left the file; else where they still are."""
    with progress_bar("Erasing") as advance:
        total = (await projects.plan_erasure(caller, project)).memories if advance else 0
        told = (lambda erasure: advance(erasure.observations, total)) if advance else noop
        erasure = await projects.erase(caller, project, told)
    engine = projects.engine
    still = await finish(place, engine, caller)
    return await receipt_of(engine, caller, erasure.id), still


def _run(where: Mapping[str, str | None], work: Callable[[Projects, Caller], Awaitable[T]]) -> T:
    place = place_of(where)
    return on_tenant(
        place,
        tenant_id(str(where["tenant"])),
        lambda engine, caller: work(Projects(engine=engine, audit=place.audit), caller),
    )


def _on_service(service: Target, work: Callable[["ProjectRoutes"], Awaitable[T]]) -> T:
    from ..project_routes import ProjectRoutes  # noqa: PLC0415 - the commands on files load no HTTP

    async def worked() -> T:
        async with ProjectRoutes.from_environment(url=service.url, key=service.key) as routes:
            return await work(routes)

    return asyncio.run(worked())


def _name(text: str) -> Project:
    return project_name(clean(text))


def _ask(what: str, fields: Mapping[str, object]) -> None:
    counts = f"{fields['observations']} observations and {fields['sessions']} sessions"
    confirm(f"Really {printable(what)}, with {counts}?")


def _listed(project: Listed) -> dict[str, object]:
    return {
        "project": project.project,
        "observations": project.memories,
        "sessions": project.sessions,
        "changed_at": project.changed_at and rendered(project.changed_at),
    }


def _moved(extent: Extent) -> dict[str, object]:
    return {
        "observations": extent.memories,
        "deleted": extent.deleted,
        "revisions": extent.revisions,
        "sessions": extent.sessions,
    }


def _removed(extent: Extent) -> dict[str, object]:
    kept = extent.shared_sessions
    return {**_moved(extent), "sessions": extent.sessions - kept, "sessions_kept": kept}


def _print_done(fields: Mapping[str, object], what: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**fields, "dry_run": dry_run}))
        return
    counts = ", ".join(f"{name} {count}" for name, count in fields.items() if type(count) is int)
    done = "It would" if dry_run else "Done:"
    click.echo(f"{done} {printable(what)}: {counts}.")


def _shown(of: Erasure) -> dict[str, object]:
    return {
        "id": of.id,
        "kind": of.kind.value,
        "project": of.project,
        "observations": of.observations,
        "revisions": of.revisions,
        "sessions": of.sessions,
        "erased_at": rendered(of.erased_at),
        "bytes_gone_at": of.bytes_gone_at and rendered(of.bytes_gone_at),
        "copies_not_reached": of.copies_not_reached,
    }


def _print_receipt(receipt: Mapping[str, Any], still: str | None) -> None:
    click.echo(
        f"Erased {printable(receipt['project'])}: {receipt['observations']} observations, "
        f"{receipt['revisions']} revisions, {receipt['sessions']} sessions.\n"
        f"Receipt: {receipt['id']}\n"
        f"{still or 'Its bytes have left the file at {bytes_gone_at}.'.format(**receipt)} "
        f"Not reached: {'; '.join(receipt['copies_not_reached'])}."
    )
