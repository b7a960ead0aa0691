"""Documents and judged queries, as they lie in a folder."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCUMENTS = "documents.jsonl"
QUERIES = "queries.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What is remembered."""

    id: str
    project: str
    session: str
    title: str
    text: str
    tags: tuple[str, ...] = ()
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked, and which documents should answer."""

    project: str
    text: str
    relevant: frozenset[str]
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A set of both, in the order of the files."""

    name: str
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]


def judged(place: str) -> Judged:
    """The set of `FOLDER`, or of `FOLDER:DOCUMENTS`, where the documents lie elsewhere.

    Refused if an id stands twice, or a relevant id nowhere.
    """
    folder, _, elsewhere = place.partition(":")
    documents = tuple(map(_document, _rows(Path(elsewhere or folder) / DOCUMENTS)))
    queries = tuple(map(_query, _rows(Path(folder) / QUERIES)))
    _check({document.id for document in documents}, documents, queries)
    return Judged(name=Path(folder).name, documents=documents, queries=queries)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _document(row: dict[str, Any]) -> Document:
    return Document(
        id=row["id"],
        project=row["project"],
        session=row["session"],
        title=row["title"],
        text=row["text"],
        tags=tuple(row.get("tags", ())),
        scope=row.get("scope"),
    )


def _query(row: dict[str, Any]) -> Query:
    return Query(
        project=row["project"],
        text=row["query"],
        relevant=frozenset(row["relevant"]),
        kind=row.get("kind", ""),
    )


def _check(ids: set[str], documents: tuple[Document, ...], queries: tuple[Query, ...]) -> None:
    if len(ids) < len(documents):
        raise SystemExit("Two documents have the same id.")
    for query in queries:
        if not query.relevant or query.relevant - ids:
            raise SystemExit(f"No document is known to answer: {query.text}")
