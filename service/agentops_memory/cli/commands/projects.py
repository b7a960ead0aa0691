"""`projects` and `agents`: list, rename, merge, limit, export and erase them."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from agentops_memory_client.contract.models import json_object
from agentops_memory_client.contract.service import Call, params

from ...engine.engine import Engine
from ...memory.access import AgentId, Caller, Key, agent_id
from ...memory.erasure import UNKNOWN_COPIES, Erasure, receipt_of
from ...memory.projects import Extent, Projects
from ...memory.rows import rendered
from ...memory.space import Project, project_name
from ...recall.text import clean, printable
from .. import output as out, place as backends, target as o
from ..program import command, group
from ..target import Target, service_at

if TYPE_CHECKING:
    from ...openintent.agents import AgentExtent, Agents

T = TypeVar("T")
Noun = TypeVar("Noun")
Where = Mapping[str, str | None]

RECEIPT = (
    "id kind project observations revisions sessions erased_at bytes_gone_at copies_not_reached"
)
HEADINGS = ("PROJECT", "OBSERVATIONS", "SESSIONS", "CHANGED")
LONGEST = timedelta(hours=1)  # for the response to an erasure; a repeated one continues

_TARGET = (*o.setting_options("db_path"), o.TENANT)
_PROJECT = o.argument("project")


@group()
def projects() -> None:
    """List, rename, merge and erase the projects of a database file.

    A service may be running on the file; it sees changes from the next request on. Each
    change adds a line to the audit file. With --url the service itself erases.
    """


@command(*_TARGET, o.json_option(), of=projects)
def list_(**where: str | None) -> None:
    """List the projects: their live observations and newest change."""
    listed = _on(Projects, where, lambda projects, caller: projects.list(caller))
    names = "project observations=memories sessions changed_at"
    out.print_records([out.parts(it, names) for it in listed], HEADINGS)


@command(*_TARGET, _PROJECT, o.argument("new"), o.DRY_RUN, o.json_option(), of=projects)
def rename(project: str, new: str, dry_run: bool, **where: str | None) -> None:
    """Rename PROJECT to NEW, which must be an unused name. Ids and sessions stay."""
    old, name = _name(project), _name(new)
    rename = Projects.plan_rename if dry_run else Projects.rename
    plan = _on(Projects, where, lambda projects, caller: rename(projects, caller, old, name))
    fields = {"project": old, "to": name, **_counts_of(plan)}
    _print_done(fields, f"rename {old} to {name}", dry_run=dry_run)


@command(*_TARGET, _PROJECT, o.argument("into"), *o.CAREFUL, of=projects)
def merge(project: str, into: str, dry_run: bool, **where: str | None) -> None:
    """Move all observations and sessions of PROJECT into INTO.

    If both have an observation with the same topic key, the text updated later stays, and
    the other becomes a revision. It is one transaction: saves wait for it, about two seconds
    per 10,000 observations.
    """
    source, target = _name(project), _name(into)
    plan = _on(Projects, where, lambda it, caller: it.plan_merge(caller, source, target))
    if not dry_run:
        _confirm(f"merge {source} into {target}", _counts_of(plan))
        plan = _on(Projects, where, lambda it, caller: it.merge(caller, source, target))
    counts = {**_counts_of(plan), "same_keys": plan.same_keys}
    fields = {"project": source, "into": target, **counts}
    _print_done(fields, f"merge {source} into {target}", dry_run=dry_run)


@command(*o.SERVICE, *_TARGET, _PROJECT, *o.CAREFUL, of=projects)
def erase(project: str, dry_run: bool, **where: str | None) -> None:
    """Erase PROJECT permanently.

    It erases its observations with their history, its sessions and its global memories. Others
    can save meanwhile. At the end nothing of it is left in the file, and the receipt says what
    was erased. Repeat the command if it was interrupted.
    """
    name, target = _name(project), Target.of(where, is_operator=True)
    if dry_run or not out.has_flag("yes"):
        if target.url:
            plan = _erase_on_service(target, name, dry_run=True)
        else:
            extent = _on(Projects, where, lambda it, caller: it.plan_erasure(caller, name))
            erased = extent.sessions - extent.shared_sessions
            sessions = {"sessions": erased, "sessions_kept": extent.shared_sessions}
            plan = {"project": name, **_counts_of(extent), **sessions}
        if dry_run:
            _print_done(plan, f"erase {name}", dry_run=True)
            return
        _confirm(f"erase {name} permanently", plan)
    if target.url:
        response = _erase_on_service(target, name)
        receipt: dict[str, Any] = {field: response.get(field) for field in RECEIPT.split()}
        later = f"`GET /erasures/{receipt['id']}` shows when its bytes have left the storage."
        remaining = None if receipt["bytes_gone_at"] else later
    else:
        erasure, remaining = _on(Projects, where, partial(_erase, backends.backend_of(where), name))
        receipt = out.parts(erasure, RECEIPT)
    gone_at = f"Its bytes have left the file at {receipt['bytes_gone_at']}."
    sentence = (
        f"Erased {printable(receipt['project'])}: {receipt['observations']} observations, "
        f"{receipt['revisions']} revisions, {receipt['sessions']} sessions.\n"
        f"Receipt: {receipt['id']}\n"
        f"{remaining or gone_at} Not reached: {'; '.join(receipt['copies_not_reached'])}."
    )
    out.print_result(receipt, sentence)


async def _erase(
    backend: backends.Backend, project: Project, projects: Projects, caller: Caller
) -> tuple[Erasure, str | None]:
    """Erase a project; wait until its bytes have left the file, or return where they remain."""
    with out.progress_bar("Erasing") as advance:
        total = (await projects.plan_erasure(caller, project)).memories
        erasure = await projects.erase(caller, project, lambda it: advance(it.observations, total))
    remaining = await backends.finish_scrub(backend, projects.engine, caller)
    return await receipt_of(projects.engine, caller, erasure.id), remaining


def _on(kind: Callable[..., Noun], where: Where, work: Callable[[Noun, Caller], Awaitable[T]]) -> T:
    """Run `work` on the projects, or the agents, of the tenant that the options name."""
    backend = backends.backend_of(where)

    def run(engine: Engine, caller: Caller) -> Awaitable[T]:
        return work(kind(engine=engine, audit=backend.audit), caller)

    return backends.on_tenant(backend, backends.tenant_of(where["tenant"]), run)


def _erase_on_service(target: Target, project: str, *, dry_run: bool = False) -> dict[str, Any]:
    call = Call(
        operation="delete_project", method="DELETE", path=("projects", project), timeout=LONGEST,
        query=params(hard=True, dry_run=dry_run), read=lambda body, _: json_object(body),
    )  # fmt: skip
    # No method of the client erases a project.
    return o.ask(service_at(target), lambda it: it._send(call))  # noqa: SLF001


def _name(text: str) -> Project:
    return project_name(clean(text))


def _confirm(action: str, fields: Mapping[str, object]) -> None:
    counts = f"{fields['observations']} observations and {fields['sessions']} sessions"
    out.confirm(f"Really {printable(action)}, with {counts}?")


def _counts_of(extent: Extent) -> dict[str, object]:
    return out.parts(extent, "observations=memories deleted revisions sessions")


def _print_done(fields: Mapping[str, object], action: str, *, dry_run: bool) -> None:
    counts = ", ".join(f"{name} {count}" for name, count in fields.items() if type(count) is int)
    done = "It would" if dry_run else "Done:"
    out.print_result({**fields, "dry_run": dry_run}, f"{done} {printable(action)}: {counts}.")


AGENT_HEADINGS = ("AGENT", "WORKING", "EPISODIC", "BYTES", "CAPACITY", "CHANGED")
SHARED = "default"  # the capacity in the service's setting

_AGENT_TARGET = (*o.setting_options("db_path", "keys_file", "seal_file"), o.TENANT)
_AGENT = o.argument("agent")


@group()
def agents() -> None:
    """List, limit, export and erase the agents of a database file, with their memory.

    A service may be running on the file; it sees changes from the next request on. Each
    change adds a line to the audit file.
    """


@command(*_AGENT_TARGET, o.json_option(), of=agents)
def list_agents(**where: str | None) -> None:
    """List the agents with their entries, and any capacity of their own."""
    listed = _on_agents(where, lambda agents, caller: agents.list(caller))
    names = "agent working episodic bytes=size episodic_capacity=capacity changed_at"
    out.print_records([out.parts(it, names) for it in listed], AGENT_HEADINGS)


def _capacity(text: str) -> int | None:
    if text == SHARED:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < len(str(sys.maxsize))):
        raise ValueError(f"is not a number, and not {SHARED}")
    return int(text)


@command(
    *_AGENT_TARGET, _AGENT,
    o.option("--episodic-capacity", "capacity", metavar="NUMBER|default", required=True,
             callback=o.parsed_by(_capacity),
             help="Maximum number of episodic entries; `default` follows the service's setting."),
    of=agents,
)  # fmt: skip
def set_(agent: str, capacity: int | None, **where: str | None) -> None:
    """Set how many episodic entries AGENT may have.

    It needs none yet. If it has more, each new entry evicts up to a hundred others.
    """
    name = agent_id(agent)
    _on_agents(where, lambda agents, caller: agents.set_capacity(caller, name, capacity))
    many = "as many episodic entries as the service's setting says"
    click.echo(f"{name} may hold {many if capacity is None else _entries(capacity, 'episodic')}.")


@command(
    *_AGENT_TARGET, _AGENT,
    o.to_option(metavar="FILE", help="The file to write; - is standard output."),
    of=agents,
)  # fmt: skip
def export(agent: str, to: str, **where: str | None) -> None:
    """Write the working and episodic entries of AGENT as JSON.

    Each line is an entry as GET /api/v1/memory/ID shows it, with confidential values, newest
    last. The file appears only when it is complete, and only its owner can read it.
    """
    name = agent_id(agent)
    backends.refuse_own(to, backends.backend_of(where).settings)
    with backends.output_file(to) as file:
        _on_agents(where, partial(_export, name, file))


@command(*_AGENT_TARGET, _AGENT, *o.CAREFUL, of=agents)
def erase_agent(agent: str, dry_run: bool, **where: str | None) -> None:
    """Erase AGENT's own memory permanently.

    It erases its working and episodic entries, its events, and its own capacity. Keys that
    speak for AGENT alone are revoked first. Semantic entries stay, because they belong to their
    namespaces. At the end nothing erased is left in the file. Repeat the command if it was
    interrupted.
    """
    backend, name = backends.backend_of(where), agent_id(agent)
    tenant = backends.tenant_of(where["tenant"])
    keys = backend.keys.ring().working(tenant, name)
    ids = [key.id for key in keys]
    extent = _on_agents(where, lambda it, caller: it.plan_erasure(caller, name, ids))
    sentence, end = f"It would erase {name}: {_counts(extent, keys)}.", dict[str, object]()
    if not dry_run:
        out.confirm(f"Really erase {name} permanently, with {_counts(extent, keys)}?")
        keys = backend.keys.revoke_all(tenant, name, at=backends.now(), by=backends.user())
        extent, remaining, copies = _on_agents(where, partial(_erase_agent, backend, name, keys))
        at = rendered(backends.now())
        end = {"bytes_gone_at": None if remaining else at, "copies_not_reached": copies}
        gone = remaining or f"The bytes have left the file at {at}."
        sentence = f"Erased {name}: {_counts(extent, keys)}.\n{gone} "
        sentence += f"Not reached: {'; '.join(copies)}."
    extents = out.parts(extent, "working episodic bytes=size events")
    document = {"agent": name, **extents, "keys": out.key_names(keys), "dry_run": dry_run, **end}
    out.print_result(document, sentence)


async def _export(agent: AgentId, file: BinaryIO, agents: "Agents", caller: Caller) -> None:
    lost = 0
    async for entries in agents.export(caller, agent):
        lines = b"".join(entry.json_bytes() + b"\n" for entry in entries)
        await asyncio.to_thread(file.write, lines)
        lost += sum(entry.is_lost for entry in entries)
    if lost:
        out.say(
            f"{_entries(lost, 'confidential')} could not be opened: see `agentops-memory doctor`."
        )


async def _erase_agent(
    backend: backends.Backend, agent: AgentId, keys: Sequence[Key], agents: "Agents", caller: Caller
) -> tuple["AgentExtent", str | None, Sequence[str]]:
    """Erase an agent; return what was erased, where its bytes remain, and copies that have it."""
    ids = [key.id for key in keys]

    def rows(extent: "AgentExtent") -> int:
        return extent.working + extent.episodic + extent.events

    with out.progress_bar("Erasing") as advance:
        total = rows(await agents.plan_erasure(caller, agent, ids))
        erased = await agents.erase(caller, agent, ids, lambda it: advance(rows(it), total))
    remaining = await backends.finish_scrub(backend, agents.engine, caller)
    return erased, remaining, (*agents.engine.maintenance.copies(caller), *UNKNOWN_COPIES)


def _on_agents(where: Where, work: Callable[["Agents", Caller], Awaitable[T]]) -> T:
    from ...openintent.agents import Agents  # noqa: PLC0415 - `projects` do not need this protocol

    return _on(Agents, where, work)


def _counts(extent: "AgentExtent", keys: Sequence[Key]) -> str:
    entries = f"{_entries(extent.working, 'working')}, {_entries(extent.episodic, 'episodic')}"
    names = f" ({', '.join(key.name for key in keys)})" if keys else ""
    events, revoked = out.counted(extent.events, "event"), out.counted(len(keys), "key")
    return f"{entries} ({out.size(extent.size)}), {events}, {revoked}{names}"


def _entries(count: int, tier: str) -> str:
    return out.counted(count, f"{tier} entry", f"{tier} entries")
