"""`agents`: the agents of a tenant, listed, limited, exported and erased at the terminal."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, TypeVar

import click

from ...engine.callbacks import noop
from ...memory.erasure import UNKNOWN_COPIES
from ...memory.model.access import AgentId, Caller, agent_id, tenant_id
from ...memory.model.keys import Key
from ...openintent.agents import AgentExtent, Agents, ListedAgent
from ...recall.text.instants import rendered
from ..catalog import group
from ..invocation import now, user
from ..options import (
    Command,
    dry_run_option,
    json_option,
    setting_options,
    tenant_option,
    without_route,
    yes_option,
)
from ..output import confirm, counted, progress_bar, say, size
from ..output_file import refuse_own, written
from ..place import Place, finish, on_tenant, place_of
from ..print_results import print_records

T = TypeVar("T")
Where = Mapping[str, str | None]

HEADINGS = ("AGENT", "WORKING", "EPISODIC", "BYTES", "CAPACITY", "CHANGED")
AS_ALL = "default"  # the capacity of an agent of which nothing was said


@group()
def agents() -> None:
    """List, limit, export and erase the agents of a database file, with their memory.

    A service may be running on the file meanwhile; it sees what is changed
    from the next request on. Every change adds a line to the audit file.
    """


def _of_a_tenant(command: Command) -> Command:
    return setting_options("db_path", "keys_file", "seal_file")(
        tenant_option("Whose agents.")(without_route(command))
    )


def _read_capacity(context: click.Context, option: click.Parameter, text: str) -> int | None:
    if text == AS_ALL:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < len(str(sys.maxsize))):
        raise click.BadParameter(f"{text!r} is no number, and not {AS_ALL}.", context, option)
    return int(text)


@agents.command("list", short_help="Show the agents.")
@_of_a_tenant
@json_option()
def list_(as_json: bool, **where: str | None) -> None:
    """Show the agents with their working and episodic entries, and the capacity of their own."""
    listed = _run(where, lambda agents, caller: agents.list(caller))
    shown = [*map(_listed, listed)]
    print_records(shown, HEADINGS, as_json=as_json)


@agents.command("set", short_help="Give an agent a capacity of its own.")
@_of_a_tenant
@click.argument("agent")
@click.option(
    "--episodic-capacity",
    "capacity",
    metavar="NUMBER|default",
    required=True,
    callback=_read_capacity,
    help="How many episodic entries it may hold; default: as many as the service's setting says.",
)
def set_(agent: str, capacity: int | None, **where: str | None) -> None:
    """Say how many episodic entries AGENT may hold, whether it has any yet or not.

    If it holds more, each entry that it makes lets up to a hundred others go.
    """
    name = agent_id(agent)
    _run(where, lambda agents, caller: agents.set_capacity(caller, name, capacity))
    many = "as many episodic entries as the service's setting says"
    click.echo(f"{name} may hold {many if capacity is None else _entries(capacity, 'episodic')}.")


@agents.command(short_help="Write all that an agent remembers for itself, as JSON.")
@_of_a_tenant
@click.argument("agent")
@click.option("--to", metavar="FILE", required=True, help="Where to; - is standard output.")
def export(agent: str, to: str, **where: str | None) -> None:
    """Write the working and episodic entries of AGENT, one in a line, the newest last.

    Each is as GET /api/v1/memory/ID shows it, confidential ones too. The file
    is there whole or not at all, and for its owner alone to read.
    """
    name = agent_id(agent)
    if not to:
        raise click.UsageError("--to needs a name.")
    refuse_own(to, place_of(where).settings)
    with written(to) as file:
        _run(where, partial(_export, name, file))


@agents.command(short_help="Erase an agent's own memory for good.")
@_of_a_tenant
@click.argument("agent")
@dry_run_option
@yes_option
@json_option()
def erase(agent: str, dry_run: bool, is_meant: bool, as_json: bool, **where: str | None) -> None:
    """Erase the working and episodic entries of AGENT, its events, and its own capacity.

    Keys that speak for AGENT alone are revoked first. Semantic entries stay,
    for they are their namespace's. At the end nothing of what went is in the
    file. One that was interrupted goes on when it is repeated.
    """
    place, name, tenant = place_of(where), agent_id(agent), tenant_id(str(where["tenant"]))
    keys = place.keys.ring().working(tenant, name)
    ids = [key.id for key in keys]
    extent = _run(where, lambda it, caller: it.plan_erasure(caller, name, ids))
    if dry_run:
        _print_erased(name, extent, keys, None, as_json=as_json)
        return
    if not is_meant:
        confirm(f"Really erase {name} for good, with {_counts(extent, keys)}?")
    keys = place.keys.revoke_all(tenant, name, at=now(), by=user())
    erased, left = _run(where, partial(_erased, place, name, keys))
    _print_erased(name, erased, keys, left, as_json=as_json)


async def _export(agent: AgentId, file: BinaryIO, agents: Agents, caller: Caller) -> None:
    lost = 0
    async for entries in agents.export(caller, agent):
        lines = b"".join(entry.json_bytes() + b"\n" for entry in entries)
        await asyncio.to_thread(file.write, lines)
        lost += sum(entry.is_lost for entry in entries)
    if lost:
        say(f"{_entries(lost, 'confidential')} could not be opened: see `agentops-memory doctor`.")


@dataclass(frozen=True, slots=True)
class _Left:
    """Where bytes of what was erased still are."""

    here: str | None  # a sentence of the storage itself
    copies: Sequence[str]


async def _erased(
    place: Place, agent: AgentId, keys: Sequence[Key], agents: Agents, caller: Caller
) -> tuple[AgentExtent, _Left]:
    ids = [key.id for key in keys]
    with progress_bar("Erasing") as advance:
        total = _rows(await agents.plan_erasure(caller, agent, ids)) if advance else 0
        told = (lambda erased: advance(_rows(erased), total)) if advance else noop
        erased = await agents.erase(caller, agent, ids, told)
    engine = agents.engine
    here = await finish(place, engine, caller)
    return erased, _Left(here, (*engine.maintenance.copies(caller), *UNKNOWN_COPIES))


def _run(where: Where, work: Callable[[Agents, Caller], Awaitable[T]]) -> T:
    place = place_of(where)
    return on_tenant(
        place,
        tenant_id(str(where["tenant"])),
        lambda engine, caller: work(Agents(engine=engine, audit=place.audit), caller),
    )


def _listed(agent: ListedAgent) -> dict[str, object]:
    return {
        "agent": agent.agent,
        "working": agent.working,
        "episodic": agent.episodic,
        "bytes": agent.size,
        "episodic_capacity": agent.capacity,
        "changed_at": agent.changed_at and rendered(agent.changed_at),
    }


def _print_erased(
    agent: AgentId,
    extent: AgentExtent,
    keys: Sequence[Key],
    left: _Left | None,  # none of a dry run
    *,
    as_json: bool,
) -> None:
    if as_json:
        click.echo(json.dumps(_document(agent, extent, keys, left)))
        return
    if left is None:
        click.echo(f"It would erase {agent}: {_counts(extent, keys)}.")
        return
    click.echo(
        f"Erased {agent}: {_counts(extent, keys)}.\n"
        f"{left.here or f'The bytes have left the file at {rendered(now())}.'} "
        f"Not reached: {'; '.join(left.copies)}."
    )


def _document(
    agent: AgentId, extent: AgentExtent, keys: Sequence[Key], left: _Left | None
) -> dict[str, Any]:
    document = {
        "agent": agent,
        "working": extent.working,
        "episodic": extent.episodic,
        "bytes": extent.size,
        "events": extent.events,
        "keys": [{"id": key.id, "name": key.name} for key in keys],
        "dry_run": left is None,
    }
    if left is None:
        return document
    gone = None if left.here else rendered(now())
    return {**document, "bytes_gone_at": gone, "copies_not_reached": left.copies}


def _counts(extent: AgentExtent, keys: Sequence[Key]) -> str:
    entries = f"{_entries(extent.working, 'working')}, {_entries(extent.episodic, 'episodic')}"
    names = f" ({', '.join(key.name for key in keys)})" if keys else ""
    events, revoked = counted(extent.events, "event"), counted(len(keys), "key")
    return f"{entries} ({size(extent.size)}), {events}, {revoked}{names}"


def _entries(count: int, tier: str) -> str:
    return counted(count, f"{tier} entry", f"{tier} entries")


def _rows(extent: AgentExtent) -> int:
    return extent.working + extent.episodic + extent.events
