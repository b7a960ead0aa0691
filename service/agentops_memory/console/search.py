"""View *Search and browse*: memories by words or by age, facets, and changes of many at once."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from starlette.responses import Response

from agentops_memory_client.contract import models as c
from agentops_memory_client.contract.errors import Conflict, NotFound, Refused

from ..agentops import wire
from ..agentops.operations import filter_of
from ..engine.engine import Transaction
from ..errors import Invalid
from ..http.query import row_count
from ..light import dataclass
from ..memory.lifecycles import with_links
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId
from ..memory.rows import UNREADABLE, texts_of
from ..memory.search import Filter
from ..memory.table import Sql
from .memory import at_revision, whole_number
from .page import PREFIX, Visit, address, project_names

PATH = f"{PREFIX}/memories"
ROWS = 25  # memories of a page
MOST_HITS = 200  # at most, by a search, or by a change of all that match
COUNTED = 1000  # of the newest, in facets: as many as a list of REST has
LISTED = 20  # values of a facet, each of which is an address with the whole query
OF_FACET = 20_000  # bytes of those addresses
FILTERS = ("project", "type", "tag", "scope", "exclude_type")
ACTIONS: Mapping[str, str] = {
    "tag": "Add a tag",
    "untag": "Remove a tag",
    "expire": "Expire now",
    "delete": "Delete",
}


async def show(visit: Visit) -> Response:
    query, words, filters = visit.query, visit.query["q"], visit.only(*FILTERS)
    following: dict[str, object] = {}  # the parameters of the next page
    if words:
        ids = await _hits(visit, words, filters)
        most = min(row_count(visit.question.query, "limit", ROWS), MOST_HITS)
        params = visit.only("q", *FILTERS, "superseded")
        twin = address("/search", **params, limit=MOST_HITS)
        memories = await visit.read(loaded, ids[:most])
        if len(ids) > most:
            following = {**params, "limit": most + ROWS}
    else:
        params = visit.only(*FILTERS, "before_id")
        question = visit.question_of(**params, limit=ROWS)
        memories = list(await visit.console.agentops.recent_observations(question))
        ids = await visit.read(newest, filter_of(visit.question), query["before_id"])
        twin = address("/observations/recent", **params, limit=COUNTED)
        if len(memories) == ROWS:
            following = {**filters, "before_id": memories[-1].id}
    counted = await visit.read(counts, ids)
    listed = min(LISTED, OF_FACET // len(address(PATH, **visit.query)))
    facets = {name: some.most_common(listed) for name, some in counted.items() if not query[name]}
    return await visit.page(
        "search.html", twin, address("/stats", project=query["project"]), memories=memories,
        facets=facets, counted=len(ids), is_all=len(ids) < (MOST_HITS if words else COUNTED),
        following=following, filters=filters, actions=ACTIONS, most=MOST_HITS,
        projects=await visit.read(project_names),
        stats=await visit.memories.stats(query["project"] or None),
    )  # fmt: skip


async def _hits(visit: Visit, words: str, filters: Mapping[str, str]) -> list[MemoryId]:
    superseded = visit.query["superseded"]
    question = visit.question_of(q=words, **filters, superseded=superseded, limit=MOST_HITS)
    return [MemoryId(it.id) for it in (await visit.console.agentops.search(question)).hits]


def newest(tx: Transaction, filter_: Filter, before: str) -> list[MemoryId]:
    older_than = MemoryId(int(before)) if before else None
    return tx[MemoryTable].newest_ids(filter_, COUNTED, before=older_than)


def loaded(tx: Transaction, ids: Sequence[MemoryId]) -> list[c.Observation]:
    return [wire.observation(it) for it in with_links(tx, tx[MemoryTable].loaded(ids))]


def counts(tx: Transaction, ids: Sequence[MemoryId]) -> dict[str, Counter[str]]:
    sql = tx[Sql]
    rows = sql.run(
        f"""SELECT m.type, s.scope, m.tags
              FROM {sql.dialect.ids("listed")}
              JOIN memories m ON m.id = listed.value
              JOIN spaces s ON s.id = m.space_id""",
        ids=json.dumps(ids),
    )
    counted: dict[str, Counter[str]] = {"type": Counter(), "tag": Counter(), "scope": Counter()}
    for type_, scope, tags in rows:
        counted["type"][type_] += 1
        counted["scope"][scope] += 1
        with suppress(*UNREADABLE):  # of a damaged row, which lists leave out
            counted["tag"].update(texts_of(str(tags)))
    return counted


@dataclass(frozen=True, slots=True)
class Step:
    """What a bulk change does, or did, to one memory."""

    id: int
    revision: int
    title: str
    says: str
    is_change: bool


async def change(visit: Visit) -> Response:
    """A preview of a bulk change; if the form comes from the preview, the change itself."""
    action, tag = visit.form.get("action", ""), visit.form.get("new_tag", "").strip()
    if action not in ACTIONS:
        raise Invalid("The form must say what to do.")
    if action in {"tag", "untag"} and not tag:
        raise Invalid("The form must name a tag.")
    is_done = "item" in visit.form
    if is_done:
        steps = [await _done(visit, action, tag, it) for it in visit.form.getlist("item")]
    else:
        memories = await visit.read(loaded, await _chosen(visit))
        steps = [_step(action, tag, memory) for memory in memories]
    filters = {name: visit.form.get(name, "") for name in ("q", *FILTERS)}
    twin = address("/search" if filters["q"] else "/observations/recent", **filters)
    return await visit.page(
        "bulk.html", twin, steps=steps, action=action, tag=tag, label=ACTIONS[action],
        is_done=is_done, changes=sum(it.is_change for it in steps), filters=filters,
        back=address(PATH, **filters),
    )  # fmt: skip


async def _chosen(visit: Visit) -> list[MemoryId]:
    """The memories whose boxes are checked; or all that the filters of the form match."""
    form = visit.form
    if form.get("which") != "all":
        return [MemoryId(whole_number(it, "id")) for it in form.getlist("id")]
    filters = {name: form[name] for name in FILTERS if form.get(name)}
    if words := form.get("q"):
        return await _hits(visit, words, filters)
    return (await visit.read(newest, filter_of(visit.question_of(**filters)), ""))[:MOST_HITS]


def _step(action: str, tag: str, memory: c.Observation) -> Step:
    match action:
        case "tag":
            is_change = tag not in memory.tags
            says = "gets the tag" if is_change else "already has it"
        case "untag":
            is_change = tag in memory.tags
            says = "loses the tag" if is_change else "does not have it"
        case "expire":
            is_change = not memory.expired
            says = "expires now; agents no longer get it" if is_change else "has already expired"
        case _:
            is_change, says = True, "is deleted; it can be restored"
    return Step(memory.id, memory.revision_count, memory.title, says, is_change)


async def _done(visit: Visit, action: str, tag: str, item: str) -> Step:
    """Change one memory, if it is still at the revision that was shown; what became of it."""
    number, revision = at_revision(item, "item")
    title = f"Memory #{number}"
    try:
        memory = await visit.memories.get(number)
        title = memory.title
        match action:
            case "tag" | "untag":
                tags = tuple(it for it in memory.tags if it != tag)
                tags = (*tags, tag) if action == "tag" else tags
                await visit.memories.update(number, tags=tags, revision=revision)
            case "expire":
                end = visit.console.clock()
                await visit.memories.update(number, expires_at=end, revision=revision)
            case _ if (current := memory.revision_count) != revision:
                raise Conflict(f"This memory is at revision {current} now, not at {revision}.")
            case _:
                await visit.memories.delete(number)
    except NotFound:
        return Step(number, revision, title, "is gone", is_change=False)
    except Refused as refusal:
        return Step(number, revision, title, str(refusal), is_change=False)
    return Step(number, revision, title, "done", is_change=True)
