"""A judged set goes into a service, and its queries come back as rankings."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from ..client import Client, get, post
from .judged import Document, Judged, Query
from .metrics import DEPTH, Asked

START = datetime(2030, 1, 1, tzinfo=UTC)
BATCH = 1000  # observations in one import
CONNECTIONS = 3
BLANK = "-"  # instead of a title or a text that says nothing
LONGEST = {"session": 500, "title": 500, "content": 50_000}  # as in docs/api.md


def load(port: int, judged: Judged) -> None:
    """Import the documents, in their order."""
    rows = map(_observation, range(len(judged.documents)), judged.documents)
    with closing(Client(port)) as client:
        while batch := list(islice(rows, BATCH)):
            client.ask(post("/import", {"observations": batch}))


def answers(port: int, judged: Judged) -> list[Asked]:
    """What the service answers to each query, in their order."""
    shares = [judged.queries[at::CONNECTIONS] for at in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        asked = list(pool.map(lambda share: _asked(port, judged, share), shares))
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


def _asked(port: int, judged: Judged, queries: Sequence[Query]) -> list[Asked]:
    with closing(Client(port)) as client:
        return [_one(client, judged, query) for query in queries]


def _one(client: Client, judged: Judged, query: Query) -> Asked:
    def ranking(found: list[dict[str, str]]) -> list[str]:
        return [judged.documents[int(item["type"][1:])].id for item in found]

    def asked(path: str, **text: str) -> Any:
        return json.loads(client.ask(get(path, project=query.project, limit=DEPTH, **text)))

    context = asked("/context", query=query.text)
    search = asked("/search", q=query.text)
    return Asked(
        relevant=query.relevant,
        context=ranking(context["recent_observations"]),
        search=ranking(search),
        kind=query.kind,
    )
