"""View *Ask as the agent*: what a prompt is answered with, why, and what was left out."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from agentops_memory_client.contract import models as c

from ..agentops.operations import filter_of
from ..http.query import row_count
from ..memory.memories import MemoryTable
from ..memory.memory import Text
from ..memory.search import MOST_SHOWN
from ..recall.query import PREFIX as ANY_ENDING
from ..recall.recall import cost_of, entry_line
from ..recall.stems import Stems
from ..recall.text import indexed
from . import page
from .page import Visit, address, project_names

LIMIT = 5  # as REST has it
MOST = 50  # memories, as many as are explained
TERMS = 12  # of a memory that are named, the strongest first
PART, BLOCK = 1_500, 55_000  # bytes of HTML of a title or a content, and of the block
NEXT = 5  # candidates below the limit

FILTERS = ("scope", "tag", "type", "exclude_type")
PARAMS = ("query", "project", "limit", "max_tokens", "why_not", *FILTERS)


async def show(visit: Visit) -> Response:
    filters = visit.only(*PARAMS)
    limit = min(row_count(visit.question.query, "limit", LIMIT), MOST)
    is_query = "query" in filters or "project" in filters
    twin = address("/context", **{**filters, "limit": limit, "explain": "true"})
    values = await _answered(visit, filters, limit) if is_query else {}
    return await visit.page(
        "ask.html", *[twin] * is_query, is_query=is_query, limit=limit, most=MOST,
        projects=await visit.read(project_names), **values,
    )  # fmt: skip


async def _answered(visit: Visit, filters: Mapping[str, str], limit: int) -> dict[str, Any]:
    # Loaded with the first answer: it brings the HTTP client, which a service does not need.
    from agentops_memory_client.runtime.session import injected  # noqa: PLC0415

    api = visit.console.agentops
    context = await api.fetch_context(
        visit.question_of(**{**filters, "limit": limit, "explain": "true"})
    )
    why = context.explanation
    assert why is not None  # the request has explain=true
    # The candidates that come next, each with its rank: the limit keeps them out.
    filter_ = filter_of(visit.question, global_too=True, is_current=True)
    ranking = await api.recall.context(
        visit.caller, filters.get("query", ""), filter_, limit + NEXT
    )
    inside = {line.explain["id"] for line in context.observations if line.explain}
    candidates = enumerate(ranking.found.hits, start=1)
    left_out = why["budget"]["left_out"][:MOST]
    ids = [it["id"] for it in left_out]
    titles = await visit.read(lambda tx: {it.id: it for it in tx[MemoryTable].texts(ids)})
    stems = Stems()  # one of a page, as a page is made in one piece
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
    starts = accumulate(shares.values(), initial=0.0)  # of parts of a bar; all in hundredths
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
    """The text with the words marked that are in this field of the index."""
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
