"""A judged set goes into a service, and its queries come back as rankings."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice

from agentops_memory.recall.recall import cost_of

from ..client import Client, get, post
from .judged import Document, Judged, Query
from .metrics import DEPTH, FIRST, Asked, Budget, Packed, Ranking

Found = Mapping[str, str]  # a memory in an answer

START = datetime(2030, 1, 1, tzinfo=UTC)
BATCH = 1000  # observations in one import
CONNECTIONS = 3
BLANK = "-"  # instead of a title or a text that says nothing
LINE = "- [{type}] {title}: {content}\n"  # what counts against a budget, as in docs/api.md
LONGEST = {"session": 500, "title": 500, "content": 50_000}  # as in docs/api.md


def load(port: int, judged: Judged) -> None:
    """Import the documents, in their order."""
    rows = map(_observation, range(len(judged.documents)), judged.documents)
    with closing(Client(port)) as client:
        while batch := list(islice(rows, BATCH)):
            client.ask(post("/import", {"observations": batch}))


def answers(port: int, judged: Judged, budgets: Sequence[Budget] = ()) -> list[Asked]:
    """What the service answers to each query, in their order; and within each budget."""
    shares = [judged.queries[at::CONNECTIONS] for at in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        asked = list(pool.map(lambda share: _asked(port, judged, share, budgets), shares))
    return [asked[at % CONNECTIONS][at // CONNECTIONS] for at in range(len(judged.queries))]


def _observation(number: int, document: Document) -> dict[str, object]:
    """The document as a row of an import. Its number is its type, which no search looks at."""
    return {
        "session_id": f"{document.project}/{document.session}"[: LONGEST["session"]],
        "project": document.project,
        "scope": document.scope,
        "type": f"n{number}",
        "title": _filled(document.title)[: LONGEST["title"]],
        "content": _filled(document.text)[: LONGEST["content"]],
        "tags": document.tags,
        "created_at": (START + timedelta(seconds=number)).isoformat(),
    }


def _filled(text: str) -> str:
    return text if text.strip() else BLANK


def _asked(
    port: int, judged: Judged, queries: Sequence[Query], budgets: Sequence[Budget]
) -> list[Asked]:
    with closing(Client(port)) as client:
        return [_one(client, judged, query, budgets) for query in queries]


def _one(client: Client, judged: Judged, query: Query, budgets: Sequence[Budget]) -> Asked:
    return Asked(
        relevant=query.relevant,
        context=_ranking(judged, _context(client, query, limit=DEPTH)),
        search=_ranking(judged, _search(client, query)),
        kind=query.kind,
        packed=tuple(_packed(client, judged, query, budget) for budget in budgets),
    )


def _context(client: Client, query: Query, **limits: int) -> list[Found]:
    request = get("/context", project=query.project, query=query.text, **limits)
    lines: list[Found] = json.loads(client.ask(request))["recent_observations"]
    return lines


def _search(client: Client, query: Query) -> list[Found]:
    request = get("/search", project=query.project, q=query.text, limit=DEPTH)
    hits: list[Found] = json.loads(client.ask(request))
    return hits


def _packed(client: Client, judged: Judged, query: Query, budget: Budget) -> Packed:
    """The context within a budget, asked for as many as recall counts."""
    limits = {} if budget is None else {"max_tokens": budget}
    lines = _context(client, query, limit=FIRST, **limits)
    tokens = sum(cost_of(LINE.format(**line)).tokens for line in lines)
    return Packed(budget=budget, ranking=_ranking(judged, lines), tokens=tokens)


def _ranking(judged: Judged, found: Sequence[Found]) -> Ranking:
    return [judged.documents[int(item["type"][1:])].id for item in found]
