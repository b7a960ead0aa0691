"""Views of memories: the search, a memory and its changes, the review, and the *Ask* page."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from agentops_memory_client.contract import models as c
from agentops_memory_client.contract.models import Conflict, NotFound, Refused

from ..agentops import wire
from ..agentops.operations import filter_of, project_of
from ..engine.engine import Transaction
from ..errors import Invalid, Unavailable
from ..http.query import row_count, whole_number
from ..light import dataclass
from ..memory.erasure import ErasureId, receipt_of
from ..memory.lifecycles import ReviewPeriods, ReviewReason, positions, with_links
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId, Text
from ..memory.rows import UNREADABLE, parsed, texts_of
from ..memory.saves import Lookalike, kept_lookalikes, lookalikes
from ..memory.search import MOST_SHOWN, Filter
from ..memory.table import Sql
from ..recall.query import PREFIX as ANY_ENDING
from ..recall.recall import cost_of, entry_line
from ..recall.stems import Stems
from ..recall.text import clean, indexed
from . import page
from .page import PREFIX, Visit, address, project_names

MEMORIES = f"{PREFIX}/memories"
ROWS = 25  # memories of a page
MOST_HITS = 200  # most memories found by a search, or changed by a bulk change
COUNTED = 1000  # newest memories that are counted in facets: as many as a REST list has
LISTED = 20  # most values of a facet, each of which is a link with the whole query
OF_FACET = 20_000  # most bytes of these links
FILTERS = ("project", "type", "tag", "scope", "exclude_type")
# The labels of bulk changes, and what the preview says of a memory.
ACTIONS: Mapping[str, tuple[str, str]] = {
    "tag": ("Add a tag", "gets the tag"),
    "untag": ("Remove a tag", "loses the tag"),
    "expire": ("Expire now", "expires now; agents no longer get it"),
    "delete": ("Delete", "is deleted; it can be restored"),
}
SIMILAR = 5
MOST_OF_UNSEEN = 8_000  # most bytes of HTML of a field's unseen change
REVIEW = f"{PREFIX}/review"
REVIEWED = 20  # lines of a page
MOST_REVIEWED = 1000  # most lines in total: as many as a REST list has
COMPARED, MOST_OF_DIFF = 1200, 4_000  # characters of each look-alike; bytes of HTML of their diff
LONGER = timedelta(days=30)
REVIEW_FILTERS = ("project", "reason", "before")
LIMIT = 5  # the default of REST
MOST = 50  # most memories, and most explanations
TERMS = 12  # most terms named for a memory, the strongest first
PART, BLOCK = 1_500, 55_000  # most bytes of HTML of a title or content, and of the context block
NEXT = 5  # candidates shown below the limit
ASK_FILTERS = ("scope", "tag", "type", "exclude_type")
PARAMS = ("query", "project", "limit", "max_tokens", "why_not", *ASK_FILTERS)


async def show_list(visit: Visit) -> Response:
    query, words, filters = visit.query, visit.query["q"], visit.only(*FILTERS)
    following: dict[str, object] = {}  # the parameters of the next page
    if words:
        ids = await _hits(visit, words, filters)
        most = min(row_count(visit.read_request.query, "limit", ROWS), MOST_HITS)
        params = visit.only("q", *FILTERS, "superseded")
        rest_path = address("/search", **params, limit=MOST_HITS)
        memories = await visit.read(loaded, ids[:most])
        if len(ids) > most:
            following = {**params, "limit": most + ROWS}
    else:
        params = visit.only(*FILTERS, "before_id")
        request = visit.read_request_of(**params, limit=ROWS)
        memories = list(await visit.console.agentops.recent_observations(request))
        ids = await visit.read(newest, filter_of(visit.read_request), query["before_id"])
        rest_path = address("/observations/recent", **params, limit=COUNTED)
        if len(memories) == ROWS:
            following = {**filters, "before_id": memories[-1].id}
    counted = await visit.read(facets_of, ids)
    listed = min(LISTED, OF_FACET // len(address(MEMORIES, **visit.query)))
    facets = {name: some.most_common(listed) for name, some in counted.items() if not query[name]}
    return await visit.page(
        "search.html", rest_path, address("/stats", project=query["project"]), memories=memories,
        facets=facets, counted=len(ids), is_all=len(ids) < (MOST_HITS if words else COUNTED),
        following=following, filters=filters, actions=ACTIONS, most=MOST_HITS,
        projects=await visit.read(project_names),
        stats=await visit.memories.stats(query["project"] or None),
    )  # fmt: skip


async def _hits(visit: Visit, words: str, filters: Mapping[str, str]) -> list[MemoryId]:
    superseded = visit.query["superseded"]
    request = visit.read_request_of(q=words, **filters, superseded=superseded, limit=MOST_HITS)
    return [MemoryId(it.id) for it in (await visit.console.agentops.search(request)).hits]


def newest(tx: Transaction, filter_: Filter, before: str) -> list[MemoryId]:
    older_than = MemoryId(int(before)) if before else None
    return tx[MemoryTable].newest_ids(filter_, COUNTED, before=older_than)


def loaded(tx: Transaction, ids: Sequence[MemoryId]) -> list[c.Observation]:
    return [wire.observation(it) for it in with_links(tx, tx[MemoryTable].loaded(ids))]


def facets_of(tx: Transaction, ids: Sequence[MemoryId]) -> dict[str, Counter[str]]:
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
        with suppress(*UNREADABLE):  # the tags of a damaged row, which lists omit
            counted["tag"].update(texts_of(str(tags)))
    return counted


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of a bulk change on one memory, before or after the change."""

    id: int
    revision: int
    title: str
    effect: str
    is_change: bool


async def change_many(visit: Visit) -> Response:
    """Preview a bulk change, or apply it if the form comes from the preview."""
    action, tag = visit.form.get("action", ""), visit.form.get("new_tag", "").strip()
    if action not in ACTIONS:
        raise Invalid("The form must say what to do.")
    if action in {"tag", "untag"} and not tag:
        raise Invalid("The form must name a tag.")
    is_done = "item" in visit.form
    if is_done:
        steps = [await _apply(visit, action, tag, it) for it in visit.form.getlist("item")]
    else:
        steps = []
        for it in await visit.read(loaded, await _chosen(visit)):
            is_change = bool(_changes(action, tag, it, visit.console.clock()))
            effect = ACTIONS[action][1] if is_change else "stays as it is"
            steps.append(Step(it.id, it.revision_count, it.title, effect, is_change))
    filters = {name: visit.form.get(name, "") for name in ("q", *FILTERS)}
    rest_path = address("/search" if filters["q"] else "/observations/recent", **filters)
    return await visit.page(
        "bulk.html", rest_path, steps=steps, action=action, tag=tag, label=ACTIONS[action][0],
        is_done=is_done, changes=sum(it.is_change for it in steps), filters=filters,
        back=address(MEMORIES, **filters),
    )  # fmt: skip


async def _chosen(visit: Visit) -> list[MemoryId]:
    """Return the memories with a checked box, or all that match the filters of the form."""
    form = visit.form
    if form.get("which") != "all":
        return [MemoryId(whole_number(it, "id")) for it in form.getlist("id")]
    filters = {name: form[name] for name in FILTERS if form.get(name)}
    if words := form.get("q"):
        return await _hits(visit, words, filters)
    return (await visit.read(newest, filter_of(visit.read_request_of(**filters)), ""))[:MOST_HITS]


def _changes(action: str, tag: str, memory: c.Observation, now: datetime) -> dict[str, Any]:
    """Return the fields that an action changes; none if the memory stays as it is."""
    others = tuple(it for it in memory.tags if it != tag)
    match action:
        case "tag":
            return {"tags": (*others, tag)} if tag not in memory.tags else {}
        case "untag":
            return {"tags": others} if tag in memory.tags else {}
        case "expire":
            return {"expires_at": now} if not memory.expired else {}
        case _:
            return {"deleted_at": now}


async def _apply(visit: Visit, action: str, tag: str, item: str) -> Step:
    """Change one memory if it is still at the revision that was shown; return the effect."""
    number, revision = at_revision(item, "item")
    title, effect = f"Memory #{number}", "done"
    try:
        memory = await visit.memories.get(number)
        title = memory.title
        if action != "delete":
            changes = _changes(action, tag, memory, visit.console.clock())
            await visit.memories.update(number, revision=revision, **changes)
        elif (current := memory.revision_count) != revision:
            raise Conflict(f"This memory is at revision {current} now, not at {revision}.")
        else:
            await visit.memories.delete(number)
    except Refused as refusal:
        effect = "is gone" if isinstance(refusal, NotFound) else str(refusal)
    return Step(number, revision, title, effect, is_change=effect == "done")


def path_of(memory: int) -> str:
    return f"{PREFIX}/memories/{memory}"


async def show(visit: Visit, *, status: int = 200, problem: str = "", **values: Any) -> Response:
    id_ = visit.number("id")
    revisions = await visit.memories.history(id_)
    memory, number = await _existing(visit, id_), visit.query["revision"]
    selected = next((it for it in revisions if str(it.revision) == number), revisions[0])
    # The changes of the selected revision by field; none for the first revision and a deletion.
    older = (it for it in revisions if it.revision < selected.revision and it.title is not None)
    before = next(older, None) if selected.title is not None else None
    differences = _differences(_fields(before), _fields(selected)) if before else {}
    return await visit.page(
        "memory.html", f"/observations/{id_}", f"/observations/{id_}/history", status=status,
        id=id_, memory=memory, revisions=revisions, problem=problem, selected=selected,
        change=differences, similar=await _similar(visit, id_) if memory else (),
        **values,
    )  # fmt: skip


async def _existing(visit: Visit, id_: int) -> c.Observation | None:
    with suppress(NotFound):
        return await visit.memories.get(id_)
    return None


async def _similar(visit: Visit, id_: int) -> tuple[Lookalike, ...]:
    """Return the near duplicates found at the save, or current ones if `similar` is set.

    In a large project, the search for them takes five times as long as the rest of the page.
    """
    api, memory = visit.console.agentops, MemoryId(id_)
    if not visit.query["similar"]:
        return await visit.read(kept_lookalikes, memory, SIMILAR)
    with suppress(Unavailable):
        return await visit.read(lookalikes, memory, SIMILAR, api.recall.timeout)
    return ()


def _fields(it: c.Observation | c.Revision) -> dict[str, str]:
    """Return the texts of a memory, by the fields of its form."""
    tags = "\n".join(it.tags)
    return {
        "title": it.title or "", "type": it.type or "", "tags": tags, "content": it.content or ""
    }  # fmt: skip


def _differences(
    before: Mapping[str, str], after: Mapping[str, str], most: int = page.MOST_OF_DIFF
) -> dict[str, Markup]:
    return {
        name: page.compared(text, after[name], most)
        for name, text in before.items()
        if text != after[name]
    }


async def edit(visit: Visit) -> Response:
    memory = await visit.memories.get(visit.number("id"))
    return await _form(visit, memory, fields=_fields(memory), based_on=memory.revision_count)


async def _form(visit: Visit, memory: c.Observation, **values: Any) -> Response:
    rest_path = f"/observations/{memory.id}"
    return await visit.page("memory_edit.html", rest_path, memory=memory, **values)


async def save(visit: Visit) -> Response:
    """Save the changed fields; after another change in the meantime, show both versions."""
    id_, form = visit.number("id"), visit.form
    memory = await visit.memories.get(id_)
    fields = {name: form.get(name, "") for name in _fields(memory)}
    based_on = whole_number(form.get("revision", ""), "revision")
    changed = _changed(memory, fields)
    if not changed:
        return visit.redirect(path_of(id_), done="unchanged")
    try:
        await visit.memories.update(id_, revision=based_on, **changed)
    except Refused as refusal:
        values: dict[str, Any] = {"status": refusal.status, "problem": str(refusal)}
        if isinstance(refusal, Conflict):
            memory = await visit.memories.get(id_)
            if memory.revision_count != based_on:
                based_on = memory.revision_count
                values = {"status": 409, "theirs": _differences(_fields(memory), fields)}
        return await _form(visit, memory, fields=fields, based_on=based_on, **values)
    return visit.redirect(path_of(id_), done="saved")


def _changed(memory: c.Observation, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the changed fields. A form drops carriage returns, so their loss is no change."""
    changed: dict[str, Any] = {
        name: fields[name]
        for name, text in _fields(memory).items()
        if name != "tags" and fields[name] != page.with_line_feeds(text)
    }
    tags = tuple(tag for tag in map(str.strip, fields["tags"].split("\n")) if tag)
    return changed if tags == memory.tags else {**changed, "tags": tags}


def revisions_of(visit: Visit) -> dict[int, int]:
    """Return the revision of each memory that was shown with the form."""
    return dict(at_revision(it, "seen") for it in visit.form.getlist("seen"))


def at_revision(text: str, name: str) -> tuple[int, int]:
    """Parse the id and the revision of a memory in a form: `id-revision`."""
    id_, _, revision = text.partition("-")
    return whole_number(id_, name), whole_number(revision, name)


async def unseen_changes(visit: Visit) -> list[tuple[c.Observation, list[dict[str, Markup]]]]:
    """Return the memories that changed since they were shown, with the differences if kept."""
    changed = []
    for id_, number in revisions_of(visit).items():
        memory = await visit.memories.get(id_)
        if memory.revision_count != number:
            before = [it for it in await visit.memories.history(id_) if it.revision == number]
            both = [(_fields(it), _fields(memory)) for it in before]
            changed.append((memory, [_differences(*it, MOST_OF_UNSEEN) for it in both]))
    return changed


async def change(visit: Visit) -> Response:
    id_, name = visit.number("id"), visit.form.get("action", "")
    try:
        if changed := await unseen_changes(visit):
            return await show(visit, status=409, unseen=changed)
        await perform(visit, id_, name)
    except Refused as refusal:
        return await show(visit, status=refusal.status, problem=str(refusal))
    return visit.redirect(path_of(id_), done=name)


async def perform(visit: Visit, id_: int, action: str) -> None:
    memories, form, revision = visit.memories, visit.form, revisions_of(visit).get(id_)
    update = partial(memories.update, id_, revision=revision)
    match action:
        case "pin" | "unpin":
            await update(pinned=action == "pin")
        case "confirm":
            await memories.confirm(id_)
        case "expire":
            await update(expires_at=_instant(visit, "expires_at") or visit.console.clock())
        case "keep":
            await update(expires_at=None)
        case "review":
            await update(review_at=_instant(visit, "review_at"))
        case "extend":
            await update(ttl=LONGER)
        case "newer" | "older":  # of this memory and the other
            other = form.get("other", "").strip().removeprefix("#")
            pair = id_, whole_number(other, "other")
            await supersede(visit, *(pair if action == "newer" else pair[::-1]))
        case "delete":
            await memories.delete(id_)
        case "restore":
            await memories.restore(id_, whole_number(form.get("revision", ""), "revision"))
        case _:
            raise Invalid("The form must say what to do.")


async def supersede(visit: Visit, newer: int, older: int) -> None:
    memory = await visit.memories.get(newer)
    links, revision = dict.fromkeys([*memory.supersedes, older]), memory.revision_count
    await visit.memories.update(newer, supersedes=[*links], revision=revision)


def _instant(visit: Visit, name: str) -> datetime | None:
    """Parse the instant in a field; without a time zone, it is in UTC."""
    text = visit.form.get(name, "").strip()
    at = parsed(text)
    if text and at is None:
        raise Invalid(f"{name} must be a date and a time.")
    return at


async def plan_erasure(visit: Visit) -> Response:
    id_ = visit.number("id")
    return await visit.page(
        "memory_erase.html", f"/observations/{id_}/history", id=id_,
        revisions=await visit.memories.history(id_), memory=await _existing(visit, id_),
    )  # fmt: skip


async def erase(visit: Visit) -> Response:
    receipt = await visit.memories.delete(visit.number("id"), hard=True)
    if receipt is None:
        raise NotFound("No such observation.")
    return visit.redirect(f"{PREFIX}/erasures/{receipt}")


async def show_receipt(visit: Visit) -> Response:
    id_ = ErasureId(clean(visit.request.path_params["id"]))
    receipt = await receipt_of(visit.console.agentops.engine, visit.caller, id_)
    return await visit.page("erasure.html", f"/erasures/{receipt.id}", receipt=receipt)


async def show_review(
    visit: Visit, *, status: int = 200, problem: str = "", **values: Any
) -> Response:
    filters, api = visit.only(*REVIEW_FILTERS), visit.console.agentops
    due = await api.review(visit.read_request_of(**filters, limit=REVIEWED))
    count = await visit.read(reasons, Filter(project=project_of(visit.read_request)), api.periods)
    return await visit.page(
        "review.html", address("/review", **filters, limit=REVIEWED), status=status,
        problem=problem, filters=filters, due=due, count=count,
        most=MOST_REVIEWED, cut=(COMPARED, MOST_OF_DIFF), projects=await visit.read(project_names),
        **values,
    )  # fmt: skip


def reasons(tx: Transaction, within: Filter, periods: ReviewPeriods) -> Counter[str]:
    due = positions(tx, within, set(ReviewReason), periods, None, MOST_REVIEWED)
    return Counter(key.reason.value for key, _ in due)


async def decide(visit: Visit) -> Response:
    """Apply a decision, unless a memory has changed; the browser continues at the next line."""
    form, action = visit.form, visit.form.get("action", "")
    id_, line = (whole_number(form.get(name, ""), name) for name in ("id", "place"))
    try:
        if unseen := await unseen_changes(visit):
            return await show_review(visit, status=409, unseen=unseen)
        await perform(visit, id_, action)
    except Refused as refusal:
        return await show_review(visit, status=refusal.status, problem=str(refusal))
    filters = visit.only(*REVIEW_FILTERS)
    return visit.redirect(REVIEW, anchor=f"#line-{line}", **filters, done=action, about=id_)


async def ask(visit: Visit) -> Response:
    filters = visit.only(*PARAMS)
    limit = min(row_count(visit.read_request.query, "limit", LIMIT), MOST)
    is_query = "query" in filters or "project" in filters
    rest_path = address("/context", **{**filters, "limit": limit, "explain": "true"})
    values = await _answered(visit, filters, limit) if is_query else {}
    return await visit.page(
        "ask.html", *[rest_path] * is_query, is_query=is_query, limit=limit, most=MOST,
        projects=await visit.read(project_names), **values,
    )  # fmt: skip


async def _answered(visit: Visit, filters: Mapping[str, str], limit: int) -> dict[str, Any]:
    # Loaded with the first answer: it brings the HTTP client, which a service does not need.
    from agentops_memory_client.runtime.session import injected  # noqa: PLC0415

    api = visit.console.agentops
    context = await api.fetch_context(
        visit.read_request_of(**{**filters, "limit": limit, "explain": "true"})
    )
    why = context.explanation
    assert why is not None  # the request has explain=true
    # The next candidates after the limit, each with its rank.
    filter_ = filter_of(visit.read_request, global_too=True, is_current=True)
    ranking = await api.recall.context(
        visit.caller, filters.get("query", ""), filter_, limit + NEXT
    )
    inside = {line.explain["id"] for line in context.observations if line.explain}
    candidates = enumerate(ranking.found.hits, start=1)
    left_out = why["budget"]["left_out"][:MOST]
    ids = [it["id"] for it in left_out]
    titles = await visit.read(lambda tx: {it.id: it for it in tx[MemoryTable].texts(ids)})
    stems = Stems()  # one instance per page
    try:
        lines = [_line(line, stems) for line in context.observations]
    finally:
        stems.close()
    return {
        "block": await asyncio.to_thread(injected, context),
        "summaries": context.summaries,
        "lines": lines,
        "omitted": context.omitted,
        "why": why,
        "missing": why.get("why_not"),
        "left_out": [(titles.get(it["id"]), it) for it in left_out],
        "below": [it for it in candidates if it[0] > limit and it[1].memory.id not in inside],
        "most_of_block": BLOCK,
    }


def _line(line: c.Line, stems: Stems) -> dict[str, Any]:
    why = line.explain
    assert why is not None
    text = entry_line(Text(type=line.type, title=line.title, content=line.content), MOST_SHOWN)
    terms = sorted(why["matched"], key=lambda it: float(it["score"]))
    total = sum(it["score"] for it in terms) or 1.0
    shares = {name: it * 100 for name, it in (why.get("fields") or {}).items() if it > 0}
    starts = accumulate(shares.values(), initial=0.0)  # of the parts of a bar, in percent
    return {
        "cost": cost_of(text),
        "why": why,
        "title": _marked(line.title, "title", terms, stems),
        "content": _marked(line.content, "content", terms, stems),
        "terms": [(it, it["score"] / total) for it in terms][:TERMS],
        "more_terms": max(len(terms) - TERMS, 0),
        "bars": list(zip(shares, shares.values(), starts, strict=False)),
    }


def _marked(text: str, field: str, terms: Iterable[Mapping[str, Any]], stems: Stems) -> Markup:
    """Highlight the words of the text that matched in this field of the index."""
    own = [it["term"] for it in terms if field in it["fields"]]
    if not own:
        return page.prose(text, PART)
    prefixes = tuple(it.removesuffix(ANY_ENDING) for it in own if it.endswith(ANY_ENDING))
    known = {*stems.of(it for it in own if not it.endswith(ANY_ENDING)).values(), *own}
    words = list(dict.fromkeys(page.WORD.findall(text)))
    of_each = zip(words, stems.of_texts([indexed(word) for word in words]), strict=True)
    matched = {
        word
        for word, some in of_each
        if not known.isdisjoint(some)
        or (prefixes and any(it.startswith(prefixes) for it in (*some, word.casefold())))
    }
    return page.highlighted(text, matched, PART)
