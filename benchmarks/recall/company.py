"""Who shares a service with a project: the other projects of its set, nobody, or strangers."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .judged import Document, Judged

TOGETHER, ALONE = "together", "alone"  # the set in one service, or each of its projects
SEED = 1
GLOBAL = "global"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """How many strangers there are, each a project, and how many memories each of them has."""

    strangers: int = 0
    memories: int = 20


NOBODY = Company()


def services(judged: Judged, company: Company = NOBODY, *, is_alone: bool) -> list[Judged]:
    """What is saved and asked, in a service for each: the set, or each of its projects."""
    others = strangers(judged, company)
    return [beside(others, one) for one in (alone(judged) if is_alone else [judged])]


def alone(judged: Judged) -> list[Judged]:
    """A set for each project that is asked about: its documents and the global ones."""
    projects = dict.fromkeys(query.project for query in judged.queries)
    return [_of_project(judged, project) for project in projects]


def beside(strangers: Sequence[Document], judged: Judged) -> Judged:
    """The set, with the strangers' documents saved before its own."""
    return replace(judged, documents=(*strangers, *judged.documents))


def strangers(judged: Judged, company: Company) -> list[Document]:
    """Documents of further projects, made of the set's sentences; always the same ones.

    So they use the words that are asked for, in the set's languages and lengths.
    """
    chance = random.Random(SEED)  # noqa: S311 - a shuffle, no secret
    sentences = [sentence for document in judged.documents for sentence in _sentences(document)]
    return [
        _memory(number, f"stranger {stranger}", judged.documents, sentences, chance)
        for stranger in range(company.strangers)
        for number in range(company.memories)
    ]


def _of_project(judged: Judged, project: str) -> Judged:
    return replace(
        judged,
        documents=tuple(
            it for it in judged.documents if it.project == project or it.scope == GLOBAL
        ),
        queries=tuple(query for query in judged.queries if query.project == project),
    )


def _memory(
    number: int,
    project: str,
    documents: Sequence[Document],
    sentences: Sequence[str],
    chance: random.Random,
) -> Document:
    """As many sentences as some document has, under the title and tags of others."""
    length = len(_sentences(chance.choice(documents)))
    return Document(
        id=f"{project}, {number}",
        project=project,
        session="",
        title=chance.choice(documents).title,
        text=" ".join(chance.choice(sentences) for _ in range(length)),
        tags=chance.choice(documents).tags,
    )


def _sentences(document: Document) -> list[str]:
    return [part for part in _SENTENCE_END.split(document.text) if part.strip()]
