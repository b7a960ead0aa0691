"""View *Documents*: what memory stores, agents and hosts' refs hold. Only their protocols write."""

import json
from contextlib import suppress
from typing import Any

from pydantic.alias_generators import to_snake
from starlette.responses import Response

from ..engine.engine import Transaction
from ..errors import Denied, Invalid, NotFound
from ..http.query import ENTRY, STORE, VERSION, known_uid, public_id
from ..memory import sight
from ..memory.access import Role, asking
from ..memory.agents import AgentEntryId, Tier, Viewer
from ..memory.redactor import NO_STORE, Redactor
from ..memory.space import MemoryRef, StoreId
from ..memory.table import Sql
from ..openintent import agents, entries
from ..openintent.api import AGENT, NO_ENTRY, PREFIX, page
from ..openwop import adapter
from ..openwop.api import BASE, RefEntryId
from ..stores import anthropic, cloud, entry, store
from .page import Visit, address

ROWS = 20  # rows of a list
MOST_SPACES = 40  # namespaces of an agent
LAID_OUT = 16_384  # bytes of a value that is laid out member by member
NO_REF = "Nothing is stored under this ref."


async def show(visit: Visit) -> Response:
    """The stores, agents and refs that this caller may see, each list with its own cursor."""
    caller, query = visit.caller, visit.query
    known, twins = await visit.read(_agents, query["agent_after"]), list[str]()
    extra: dict[str, Any] = {}
    if caller.projects.are_everything:
        refs = await adapter.list_refs(
            visit.console.refs, caller, limit=ROWS, after=query["ref_after"]
        )
        stores = await visit.read(
            store.list_stores, name=query["name"], limit=ROWS,
            with_archived=query["include_archived"] == "true",
            after=_cursor(visit, "after_id", STORE),
        )  # fmt: skip
        next_ref = refs.beside(len(refs.items)).get("next")
        extra = {"stores": stores, "refs": refs.items, "next_ref": next_ref}
        which = visit.only("name", "include_archived", "after_id")
        twins = [address(cloud.STORES, **which, limit=ROWS),
                 address(f"{BASE}/refs", after=query["ref_after"], limit=ROWS)]  # fmt: skip
    return await visit.page(
        "documents.html", *twins, agents=known[:ROWS], speaks=caller.agents.names,
        next_agent=known[ROWS - 1].agent if len(known) > ROWS else "", **extra,
    )  # fmt: skip


def _agents(tx: Transaction, after: str) -> list[agents.ListedAgent]:
    """Those that the caller speaks for, in the order of their names, and one more than a page."""
    known = f"SELECT k.name FROM {agents.KNOWN} WHERE k.name > :after ORDER BY k.name"
    names = filter(tx.caller.agents.match, tx[Sql].texts(known, after=after))
    return agents.listed(tx, list(names)[: ROWS + 1])


async def show_store(visit: Visit) -> Response:
    """One folder of a store, and the latest changes of all its documents."""
    id_, query = StoreId(_id(visit, "store", STORE, NO_STORE)), visit.query
    folder, older = query["path_prefix"].strip("/"), _cursor(visit, "after_id", VERSION)
    prefix = f"{folder}/" if folder else ""

    def read(tx: Transaction) -> Any:
        return store.known_store(tx, id_), entry.tree(
            tx, id_, limit=ROWS, prefix=prefix, is_shallow=True, after=query["after"] or None
        ), entry.list_versions(tx, id_, limit=ROWS, after=older)  # fmt: skip

    known, tree, changes = await visit.read(read)
    named, steps = public_id(STORE, id_), folder.split("/") if folder else []
    listed = anthropic.MEMORIES.format(memory_store_id=named)
    return await visit.page(
        "store.html", cloud.STORE_PATH.format(store_id=named),
        address(listed, path_prefix=f"/{prefix}" if prefix else "", depth=1),
        address(cloud.VERSIONS.format(store_id=named), after_id=query["after_id"], limit=ROWS),
        store=known, tree=tree, changes=changes, prefix=prefix,
        above=[("/".join(steps[: at + 1]) + "/", step) for at, step in enumerate(steps)],
    )  # fmt: skip


async def show_document(visit: Visit) -> Response:
    """A document, which may be deleted, as one of its versions has it; and what that changed."""
    of = StoreId(_id(visit, "store", STORE, NO_STORE))
    id_ = store.EntryId(_id(visit, "entry", ENTRY, store.NO_ENTRY))
    chosen, base, older = (_cursor(visit, it, VERSION) for it in ("version", "with", "after_id"))

    def one(tx: Transaction, which: str) -> entry.Version:
        known = entry.known_version(tx, of, store.VersionId(which))
        if known.entry != id_:
            raise NotFound(store.NO_VERSION)
        return known

    def read(tx: Transaction) -> dict[str, Any]:
        listed, live = entry.list_versions(tx, of, entry=id_, limit=ROWS, after=older), None
        if not listed.items:
            raise NotFound(store.NO_ENTRY)
        selected = one(tx, chosen or listed.items[0].id)
        before = entry.list_versions(tx, of, entry=id_, limit=1, after=selected.id).items
        with suppress(NotFound):
            live = entry.known_entry(tx, of, id_)
        return {
            "store": store.known_store(tx, of), "entry": live, "versions": listed,
            "selected": selected, "base": one(tx, base or before[0].id) if base or before else None,
        }  # fmt: skip

    values = await visit.read(read)
    named = {"store_id": public_id(STORE, of), "entry_id": public_id(ENTRY, id_)}
    twin = cloud.VERSION_PATH.format(**named, version_id=public_id(VERSION, values["selected"].id))
    cursor, path = visit.query["after_id"], cloud.VERSIONS.format(**named)
    listed = address(path, entry_id=named["entry_id"], limit=ROWS, after_id=cursor)
    live = [cloud.ENTRY_PATH.format(**named)] if values["entry"] else []
    return await visit.page("document.html", *live, listed, twin, **values)


async def show_agent(visit: Visit) -> Response:
    """What an agent may read, newest first, and how much of it is in each namespace.

    To look is no access of the agent: what is evicted next stays the same.
    """
    viewer, console, (_, offset) = _viewer(visit), visit.console, page(visit.request)
    rules, query = console.agents.rules(visit.caller), entries.AgentFilter.of(visit.request)
    filter_ = query.clean(Redactor(rules))

    def read(tx: Transaction) -> dict[str, Any]:
        agents.require_known(tx, viewer.agent)
        readable, name = sight.readable(tx, viewer), filter_.namespace or ""
        condition, values = entries.AgentFilter().condition(tx, readable)
        spaces = f"""SELECT p.namespace, p.tier, count(*)
                       FROM {entries.ENTRIES}
                      WHERE {condition}
                   GROUP BY p.namespace, p.tier
                   ORDER BY p.namespace, p.tier
                      LIMIT {MOST_SPACES}"""
        ids = [it for it, _ in entries.ids_of(tx, filter_, readable, ROWS, offset)]
        is_shared = filter_.tier is Tier.SEMANTIC and sight.reads_namespace(tx, viewer, name)
        return {
            "summary": agents.summary(tx, viewer.agent, viewer, console.agents.capacities),
            "spaces": tx[Sql].run(spaces, **values).fetchall(),
            "entries": entries.some(tx, viewer, ids), "total": entries.total(tx, filter_, readable),
            "permissions": sight.permissions(tx, name) if is_shared else None,
        }  # fmt: skip

    filters = visit.only(*(it.name for it in entries.FILTER))
    listed = address(entries.MEMORY, **filters, limit=ROWS, offset=offset)
    return await visit.page(
        "agent.html", f"{PREFIX}/agents/{viewer.agent}/memory/summary", listed,
        header=f"{AGENT}: {viewer.agent}", agent=viewer.agent, filters=filters, offset=offset,
        shown=ROWS, **await visit.read(read),
    )  # fmt: skip


async def show_agent_entry(visit: Visit) -> Response:
    """An entry, with its value: a confidential one for those to whom the protocol shows it."""
    viewer, id_ = _viewer(visit), AgentEntryId(_id(visit, "entry", ENTRY, NO_ENTRY))
    known = await visit.read(entries.known, id_, viewer)
    value = known.value
    if not known.is_lost and len(value) <= LAID_OUT:
        value = json.dumps(json.loads(value), ensure_ascii=False, indent=2)
    return await visit.page(
        "agent_entry.html", f"{entries.MEMORY}/{public_id(ENTRY, id_)}", entry=known,
        header=f"{AGENT}: {viewer.agent}", agent=viewer.agent, value=value,
    )  # fmt: skip


async def show_ref(visit: Visit) -> Response:
    """The entries of a ref that no other one supersedes; in a run, as that sees them."""
    visit.caller.require_refs()
    ref, filters = MemoryRef(visit.query["memoryRef"]), visit.only("tag", "before", "runId")
    which: Any = {to_snake(name): text for name, text in filters.items()}
    listed = await adapter.list_entries(
        visit.console.refs, visit.caller, memory_ref=ref, limit=ROWS, **which
    )
    if not listed.items and not filters:
        raise NotFound(NO_REF)
    twin = address(f"{BASE}/memory", memoryRef=ref, **filters, limit=ROWS)
    next_ = listed.beside(len(listed.items)).get("next")
    return await visit.page("ref.html", twin, entries=listed.items, next=next_)


async def show_ref_entry(visit: Visit) -> Response:
    """An entry of a ref, and how it differs from one that it replaces, or that replaces it."""
    visit.caller.require_refs()
    caller, refs, query = visit.caller, visit.console.refs, visit.query
    ref, id_ = MemoryRef(query["memoryRef"]), RefEntryId(query["memoryId"])
    current = (await adapter.get(refs, caller, memory_id=id_, memory_ref=ref)).entry
    origin = await adapter.provenance(refs, caller, memory_id=id_, memory_ref=ref)
    newer = origin.superseded_by or ()
    linked = (*origin.derived_from, *newer)
    other = query["with"] or next(iter(linked), "")
    if other and other not in linked:
        raise NotFound(NO_REF)
    with_other = other and await adapter.get(refs, caller, memory_id=other, memory_ref=ref)
    return await visit.page(
        "ref_entry.html",
        *(address(f"{BASE}/{of}/{id_}", memoryRef=ref) for of in ("memory", "provenance")),
        entry=current, origin=origin, newer=newer, is_newer=other in newer,
        other=with_other.entry if with_other else None,
    )  # fmt: skip


def _viewer(visit: Visit) -> Viewer:
    """The viewer of the agent in the path; one that the key does not speak for is as unknown."""
    try:
        agent = asking(visit.caller, visit.request.path_params["agent"])
    except (Denied, Invalid):
        raise NotFound(agents.NO_AGENT) from None
    return Viewer(agent=agent, is_admin=visit.caller.role.includes(Role.ADMIN))


def _id(visit: Visit, name: str, kind: str, sentence: str) -> str:
    return known_uid(kind, visit.request.path_params[name], sentence)


def _cursor(visit: Visit, name: str, kind: str) -> str | None:
    """The id in a parameter; NotFound for what is none."""
    text = visit.query[name]
    return known_uid(kind, text, "No such place in this list.") if text else None
