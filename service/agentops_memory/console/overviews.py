"""Views *Projects*, *Sessions*, *Service* and *Documents*.

Projects: the size, growth and types of each project, and a heat map of days. Sessions: the summary,
the first and last messages, and the saved memories. Service: its health, contents, retention, keys
and slow requests. Documents: the contents of memory stores, agents and hosts' refs, which only
their protocols can change.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pydantic.alias_generators import to_snake
from starlette.responses import Response

from agentops_memory_client.contract.models import counted

from ..agentops import wire
from ..agentops.operations import project_of
from ..engine.engine import Transaction
from ..errors import Denied, Invalid, NotFound
from ..http.app import READY
from ..http.bodies import Arguments
from ..http.query import ENTRY, STORE, VERSION, amount, known_uid, public_id
from ..memory import agent_memory
from ..memory.access import DEFAULT_TENANT, Key, Role, asking
from ..memory.agent_memory import AgentEntryId, Viewer
from ..memory.erasure import ReceiptTable
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId, SessionId, live
from ..memory.projects import Listed
from ..memory.redactor import NO_STORE, Redactor
from ..memory.rows import EPOCH, LAST
from ..memory.search import Filter
from ..memory.sessions import SessionTable, TranscriptTable, recent_sessions
from ..memory.space import MemoryRef, Project, StoreId
from ..memory.table import Sql
from ..openintent import agents, entries
from ..openintent.api import AGENT, NO_ENTRY, PAGE, PREFIX
from ..openwop import routes as openwop
from ..openwop.api import BASE, RefEntryId
from ..recall.summary import parsed_summary
from ..recall.text import clean
from ..stores import anthropic, cloud, entry, store
from ..telemetry import SLOW
from .memories import COUNTED, facets_of, loaded, newest
from .page import Visit, address, project_names

MOST_PROJECTS = 40  # projects of a page
WEEKS = 53  # weeks of the heat map
GROWTH = 12  # weeks shown for each project in the list
DAY = 86_400_000_000  # microseconds
MOST_SESSIONS = 25  # sessions of a page
MOST_MEMORIES = 50  # memories of a page
MOST_ROWS = 20  # rows of a list
MOST_SPACES = 40  # namespaces of an agent
LAID_OUT = 16_384  # most characters of a JSON value that is indented
NO_REF = "Nothing is stored under this ref."
ERASURES = 20  # receipts in the list


async def show_projects(visit: Visit) -> Response:
    project, after = project_of(visit.read_request), visit.query["after"]
    stats = await visit.memories.stats(project)
    if project is not None and project not in stats.projects:
        raise NotFound("No such project.")
    names = [Project(it) for it in stats.projects if it > after] if project is None else [project]
    rows, days, types = await visit.read(activity, Filter(project=project), names[:MOST_PROJECTS])
    # The count of each day, by weeks from Monday to Sunday; the last week ends today.
    today = visit.console.clock().date()
    monday = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    every = [
        (it := monday + timedelta(days=at), days[it]) for at in range((today - monday).days + 1)
    ]
    recent = address("/observations/recent", project=project, limit=COUNTED)
    return await visit.page(
        "projects.html", address("/stats", project=project), recent, stats=stats, rows=rows,
        weeks=[every[at : at + 7] for at in range(0, len(every), 7)], types=types, selected=project,
        most=COUNTED, most_of_day=max(days.values(), default=1),
        has_more=len(names) > MOST_PROJECTS,
    )  # fmt: skip


def listed_project(tx: Transaction, project: Project) -> Listed:
    memories, sessions = tx[MemoryTable], tx[SessionTable]
    used = [it.created_at for it in memories.newest(Filter(project=project), 1)]
    used += [it.ended_at or it.started_at for it in sessions.newest(project, 1)]
    last = max(used, default=None)
    return Listed(project, memories.count(project), sessions.count(project), last)


def activity(
    tx: Transaction, within: Filter, names: Sequence[Project]
) -> tuple[list[tuple[Listed, list[int]]], Counter[date], Counter[str]]:
    """Return each project with its counts by week, all counts by day, and types of the newest."""
    today, days, sql = tx.now.date(), Counter[date](), tx[Sql]
    growth = {it: [0] * GROWTH for it in names}
    saved = sql.run(  # by project and day since 1970: live memories, as in the statistics
        f"""SELECT s.project, m.created_at / {DAY}, count(*)
              FROM spaces s
              JOIN memories m {sql.dialect.hint("memories_by_time")} ON m.space_id = s.id
             WHERE {sql.on_spaces(within)} AND {live("m")}
                   AND m.created_at BETWEEN :since AND {LAST}
          GROUP BY s.project, m.created_at / {DAY}""",
        since=(today - timedelta(weeks=WEEKS) - EPOCH.date()).days * DAY,
        **sql.values(within),
    )
    for project, number, count in saved.fetchall():
        day = EPOCH.date() + timedelta(days=number)
        days[day] += count
        week = GROWTH - 1 - (today - day).days // 7  # out of range if the clock was set back
        if project in growth and 0 <= week < GROWTH:
            growth[project][week] += count
    rows = [(listed_project(tx, it), growth[it]) for it in names]
    return rows, days, facets_of(tx, newest(tx, within, ""))["type"]


async def show_sessions(visit: Visit) -> Response:
    filters, project = visit.only("project", "before_id"), project_of(visit.read_request)
    values = await visit.read(listed_sessions, project, filters.get("before_id"))
    rest_path = address("/sessions/recent", **filters, limit=MOST_SESSIONS)
    return await visit.page("sessions.html", rest_path, most=MOST_SESSIONS, **values)


def listed_sessions(tx: Transaction, project: Project | None, before: str | None) -> dict[str, Any]:
    """Read everything at once: with three reads, a page under load took three times as long."""
    sessions = recent_sessions(tx, project, MOST_SESSIONS, SessionId(before) if before else None)
    sql, listed = tx[Sql], json.dumps([it.id for it in sessions])
    counts = sql.run(  # of live memories, as in the lists of memories
        f"""SELECT m.session_id, count(*)
              FROM memories m
              JOIN spaces s ON s.id = m.space_id
             WHERE m.session_id IN (SELECT value FROM {sql.dialect.texts("listed")})
                   AND {sql.on_spaces(Filter())} AND {live("m")}
          GROUP BY m.session_id""",
        **{**sql.values(Filter()), "texts": listed},
    )
    return {
        "sessions": [wire.session(it) for it in sessions], "counts": dict(counts.fetchall()),
        "projects": project_names(tx),
    }  # fmt: skip


async def show_one(visit: Visit) -> Response:
    id_ = SessionId(clean(visit.request.path_params["id"]))
    after = amount(visit.read_request.query, "after") or 0
    values = await visit.read(conversation, id_, after)
    own = {"project": values["session"].project}
    return await visit.page(
        "session.html", address("/sessions/recent", **own, before_id=[*values["newer"]], limit=1),
        address("/observations/recent", **own, limit=COUNTED), most=MOST_MEMORIES, **values,
    )  # fmt: skip


def conversation(tx: Transaction, id_: SessionId, after: int) -> dict[str, Any]:
    """Return a session with its first and last messages, some memories, and its neighbors."""
    sessions, sql = tx[SessionTable], tx[Sql]
    session = sessions.get(id_)
    if session is None or not tx.caller.projects.match(session.project):
        raise NotFound("No such session.")
    memories: list[MemoryId] = sql.column(
        f"""SELECT m.id
              FROM memories m
              JOIN spaces s ON s.id = m.space_id
             WHERE m.session_id = :session AND m.id > :after
                   AND {sql.on_spaces(Filter())} AND {live("m")}
          ORDER BY m.id
             LIMIT {MOST_MEMORIES + 1}""",
        **{**sql.values(Filter()), "session": id_, "after": after},
    )
    newer = sql.texts(
        """SELECT id
             FROM sessions
            WHERE project = :project
                  AND (started_at, number) > (SELECT started_at, number
                                                FROM sessions
                                               WHERE id = :id)
         ORDER BY started_at, number
            LIMIT 1""",
        project=session.project, id=id_,
    )  # fmt: skip
    return {
        "session": wire.session(session),
        "said": tx[TranscriptTable].get(id_) or parsed_summary(session.summary),
        "memories": loaded(tx, memories),
        "newer": newer,
        "older": [it.id for it in sessions.newest(session.project, 1, before=id_)],
    }


async def show_service(visit: Visit) -> Response:
    console, caller = visit.console, visit.caller
    sees_all = caller.role.includes(Role.ADMIN) and caller.projects.are_everything
    settings = console.settings
    is_operator = sees_all and caller.tenant == DEFAULT_TENANT  # other tenants have other files
    rest_paths = [READY, "/stats"]
    if is_operator and settings.metrics != "off":
        rest_paths.append("/metrics")
    return await visit.page(
        "service.html", *rest_paths,
        health=await console.readiness(), stats=await visit.memories.stats(),
        sizes=await console.maintenance.sizes(caller) if sees_all else None,
        counts=await console.maintenance.count(caller) if sees_all else None,
        settings=settings, period=_period, is_on_postgresql=bool(settings.database_url),
        sees_all=sees_all, sees_path=is_operator and not settings.database_url,
        erasures=await visit.read(lambda tx: tx[ReceiptTable].newest(ERASURES)) if sees_all else [],
        keys=_keys(visit) if sees_all else [],
        slow=[
            (datetime.fromtimestamp(it.at, UTC), it)
            for it in reversed(console.metrics.slow)
            if it.tenant == caller.tenant
        ] if sees_all else [],
        slow_from=round(SLOW * 1000),
    )  # fmt: skip


def _keys(visit: Visit) -> list[tuple[Key, bool, datetime | None]]:
    """Return the keys of the caller's tenant, whether each is valid, and its last use."""
    console, now = visit.console, visit.console.clock()
    lines = [
        (key, not key.revoked_at and any(it.is_valid_at(now) for it in key.secrets),
         console.used.get(key.id))
        for key in console.keys().keys.values() if key.tenant == visit.caller.tenant
    ]  # fmt: skip
    return sorted(lines, key=lambda line: (not line[1], line[0].name, line[0].id))


def _period(time: timedelta) -> str:
    for unit in ("day", "hour", "minute"):
        length = timedelta(**{f"{unit}s": 1})
        if time and not time % length:
            return counted(time // length, unit)
    return f"{time.total_seconds():g} seconds" if time else "never"


async def show_documents(visit: Visit) -> Response:
    """List the stores, agents and refs that this caller may see, each list with its cursor."""
    caller, query = visit.caller, visit.query
    known, rest_paths = await visit.read(_agents, query["agent_after"]), list[str]()
    extra: dict[str, Any] = {}
    if caller.projects.are_everything:
        refs = await openwop.list_refs(
            visit.console.refs, caller, limit=MOST_ROWS, after=query["ref_after"]
        )
        stores = await visit.read(
            store.list_stores, name=query["name"], limit=MOST_ROWS,
            with_archived=query["include_archived"] == "true",
            after=_cursor(visit, "after_id", STORE),
        )  # fmt: skip
        next_ref = refs.beside(len(refs.items)).get("next")
        extra = {"stores": stores, "refs": refs.items, "next_ref": next_ref}
        which = visit.only("name", "include_archived", "after_id")
        rest_paths = [address(cloud.STORES, **which, limit=MOST_ROWS),
                 address(f"{BASE}/refs", after=query["ref_after"], limit=MOST_ROWS)]  # fmt: skip
    return await visit.page(
        "documents.html", *rest_paths, agents=known[:MOST_ROWS], speaks=caller.agents.names,
        next_agent=known[MOST_ROWS - 1].agent if len(known) > MOST_ROWS else "", **extra,
    )  # fmt: skip


def _agents(tx: Transaction, after: str) -> list[agents.ListedAgent]:
    """Return the caller's agents by name: a page of them and one more."""
    known = f"SELECT k.name FROM {agents.KNOWN} WHERE k.name > :after ORDER BY k.name"
    names = filter(tx.caller.agents.match, tx[Sql].texts(known, after=after))
    return agents.listed(tx, list(names)[: MOST_ROWS + 1])


async def show_store(visit: Visit) -> Response:
    """Show a folder of a store, and the latest changes of all its documents."""
    id_, query = StoreId(_id(visit, "store", STORE, NO_STORE)), visit.query
    folder, older = query["path_prefix"].strip("/"), _cursor(visit, "after_id", VERSION)
    prefix = f"{folder}/" if folder else ""

    def read(tx: Transaction) -> Any:
        return store.known_store(tx, id_), entry.tree(
            tx, id_, limit=MOST_ROWS, prefix=prefix, is_shallow=True, after=query["after"] or None
        ), entry.list_versions(tx, id_, limit=MOST_ROWS, after=older)  # fmt: skip

    known, tree, changes = await visit.read(read)
    named, steps = public_id(STORE, id_), folder.split("/") if folder else []
    listed = anthropic.MEMORIES.format(memory_store_id=named)
    return await visit.page(
        "store.html", cloud.STORE_PATH.format(store_id=named),
        address(listed, path_prefix=f"/{prefix}" if prefix else "", depth=1),
        address(cloud.VERSIONS.format(store_id=named), after_id=query["after_id"], limit=MOST_ROWS),
        store=known, tree=tree, changes=changes, prefix=prefix,
        above=[("/".join(steps[: at + 1]) + "/", step) for at, step in enumerate(steps)],
    )  # fmt: skip


async def show_document(visit: Visit) -> Response:
    """Show a version of a document, which may be deleted, and the change that it made."""
    of = StoreId(_id(visit, "store", STORE, NO_STORE))
    id_ = store.EntryId(_id(visit, "entry", ENTRY, store.NO_ENTRY))
    chosen, base, older = (_cursor(visit, it, VERSION) for it in ("version", "with", "after_id"))

    def one(tx: Transaction, which: str) -> entry.Version:
        known = entry.known_version(tx, of, store.VersionId(which))
        if known.entry != id_:
            raise NotFound(store.NO_VERSION)
        return known

    def read(tx: Transaction) -> dict[str, Any]:
        listed, live = entry.list_versions(tx, of, entry=id_, limit=MOST_ROWS, after=older), None
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
    selected = public_id(VERSION, values["selected"].id)
    version = cloud.VERSION_PATH.format(**named, version_id=selected)
    cursor, path = visit.query["after_id"], cloud.VERSIONS.format(**named)
    listed = address(path, entry_id=named["entry_id"], limit=MOST_ROWS, after_id=cursor)
    live = [cloud.ENTRY_PATH.format(**named)] if values["entry"] else []
    return await visit.page("document.html", *live, listed, version, **values)


async def show_agent(visit: Visit) -> Response:
    """Show the entries that an agent may read, newest first, and their number by namespace.

    This does not count as an access by the agent, so the order of eviction stays the same.
    """
    viewer, console = _viewer(visit), visit.console
    offset = Arguments(visit.request).parsed(PAGE)["offset"]
    conditions = Arguments(visit.request).parsed(entries.FILTER)
    rules = console.agents.rules(visit.caller)
    filter_ = entries.AgentFilter.of(**conditions).clean(Redactor(rules))

    def read(tx: Transaction) -> dict[str, Any]:
        agents.require_known(tx, viewer.agent)
        readable = agent_memory.readable(tx, viewer)
        condition, values = entries.AgentFilter().condition(tx, readable)
        spaces = f"""SELECT p.namespace, p.tier, count(*)
                       FROM {entries.ENTRIES}
                      WHERE {condition}
                   GROUP BY p.namespace, p.tier
                   ORDER BY p.namespace, p.tier
                      LIMIT {MOST_SPACES}"""
        ids = [it for it, _ in entries.ids_of(tx, filter_, readable, MOST_ROWS, offset)]
        return {
            "summary": agents.summary(tx, viewer, viewer.agent, console.agents.capacities),
            "spaces": tx[Sql].run(spaces, **values).fetchall(),
            "entries": entries.some(tx, viewer, ids), "total": entries.total(tx, filter_, readable),
        }  # fmt: skip

    filters = visit.only(*(it.name for it in entries.FILTER))
    listed = address(entries.MEMORY, **filters, limit=MOST_ROWS, offset=offset)
    return await visit.page(
        "agent.html", f"{PREFIX}/agents/{viewer.agent}/memory/summary", listed,
        header=f"{AGENT}: {viewer.agent}", agent=viewer.agent, filters=filters, offset=offset,
        shown=MOST_ROWS, **await visit.read(read),
    )  # fmt: skip


async def show_agent_entry(visit: Visit) -> Response:
    """Show an entry with its value; a confidential value only if the protocol would show it."""
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
    """Show the entries of a ref that are not superseded; with a run, as of its snapshot."""
    visit.caller.require_refs()
    ref, filters = MemoryRef(visit.query["memoryRef"]), visit.only("tag", "before", "runId")
    which: Any = {to_snake(name): text for name, text in filters.items()}
    listed = await openwop.list_entries(
        visit.console.refs, visit.caller, memory_ref=ref, limit=MOST_ROWS, **which
    )
    if not listed.items and not filters:
        raise NotFound(NO_REF)
    rest_path = address(f"{BASE}/memory", memoryRef=ref, **filters, limit=MOST_ROWS)
    next_ = listed.beside(len(listed.items)).get("next")
    return await visit.page("ref.html", rest_path, entries=listed.items, next=next_)


async def show_ref_entry(visit: Visit) -> Response:
    """Show an entry of a ref, and its difference from an entry that it replaces or vice versa."""
    visit.caller.require_refs()
    caller, refs, query = visit.caller, visit.console.refs, visit.query
    ref, id_ = MemoryRef(query["memoryRef"]), RefEntryId(query["memoryId"])
    current = (await openwop.get(refs, caller, memory_id=id_, memory_ref=ref)).entry
    origin = await openwop.provenance(refs, caller, memory_id=id_, memory_ref=ref)
    newer = origin.superseded_by or ()
    linked = (*origin.derived_from, *newer)
    other = query["with"] or next(iter(linked), "")
    if other and other not in linked:
        raise NotFound(NO_REF)
    with_other = other and await openwop.get(refs, caller, memory_id=other, memory_ref=ref)
    return await visit.page(
        "ref_entry.html",
        *(address(f"{BASE}/{of}/{id_}", memoryRef=ref) for of in ("memory", "provenance")),
        entry=current, origin=origin, newer=newer, is_newer=other in newer,
        other=with_other.entry if with_other else None,
    )  # fmt: skip


def _viewer(visit: Visit) -> Viewer:
    """Return the viewer of the agent in the path; NotFound if the key may not act for it."""
    try:
        agent = asking(visit.caller, visit.request.path_params["agent"])
    except (Denied, Invalid):
        raise NotFound(agents.NO_AGENT) from None
    return Viewer(agent=agent, is_admin=visit.caller.role.includes(Role.ADMIN))


def _id(visit: Visit, name: str, kind: str, sentence: str) -> str:
    return known_uid(kind, visit.request.path_params[name], sentence)


def _cursor(visit: Visit, name: str, kind: str) -> str | None:
    """Parse the id in a parameter; NotFound for any other text."""
    text = visit.query[name]
    return known_uid(kind, text, "No such place in this list.") if text else None
