"""Nouns as JSON, within the bound of one answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response

from agentops_memory_client.contract import models as c
from agentops_memory_client.contract.reading import adapter

from ..kit.http import MAX_ANSWER, fitting

T = TypeVar("T")

JSON = "application/json"
OMITTED = "X-Results-Omitted"
REDACTED = "X-Redacted"
NONE: Mapping[str, str] = {}
IN_HEADERS = {"redacted"}
EMPTY_IS_TOLD = {c.Stats, c.ImportPlan}  # of which a list without entries is no absent one

# The most that a part can take beside its content, and a character of that: `\u0000`.
MOST_BESIDE, MOST_OF_A_CHARACTER = 64 * 1024, 6


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """A list, as much of it as one answer can hold."""

    rows: list[T]
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """A session in a context."""

    summary: str


def held(parts: Sequence[T], *, beside: int = 0, centre: int = 0) -> Rows[T]:
    """The parts that one answer can hold beside so many bytes, the nearest to the centre first."""
    if not beside and _are_small(parts):
        return Rows(list(parts))
    nearest = sorted(range(len(parts)), key=lambda at: abs(at - centre))
    fit = fitting((json_bytes(parts[at]) for at in nearest), beside=beside)
    kept = sorted(nearest[: len(fit)])
    return Rows([parts[at] for at in kept], omitted=len(parts) - len(kept))


def _are_small(parts: Sequence[object]) -> bool:
    """Whether they fit whatever they say, so that nothing has to be measured."""
    texts = (getattr(part, name, None) for part in parts for name in ("content", "summary"))
    characters = sum(map(len, filter(None, texts)))
    return len(parts) * MOST_BESIDE + characters * MOST_OF_A_CHARACTER < MAX_ANSWER


def json_bytes(noun: object) -> bytes:
    """A noun, or a list of one kind, as JSON; parts without a value are absent."""
    kind: Any = type(noun)
    match noun:
        case BaseModel():
            return noun.model_dump_json(exclude_none=True).encode()
        case c.Found():
            return _found(noun)
        case c.Context():
            return b"{%b}" % b",".join(_context(noun))
        case [first, *_]:
            kind = list[type(first)]  # type: ignore[misc]
        case list() | dict():
            return to_json(noun)
    return adapter(kind).dump_json(
        noun, exclude=IN_HEADERS, exclude_none=True, exclude_defaults=kind not in EMPTY_IS_TOLD
    )


def _found(found: c.Found) -> bytes:
    """A list of hits; beside their explanation, if one is wanted."""
    hits = json_bytes(list(found.hits))
    if found.explanation is None:
        return hits
    return b'{"results":%b,"explain":%b}' % (hits, json_bytes(found.explanation))


def _context(context: c.Context) -> Iterator[bytes]:
    summaries = list(map(SummaryLine, context.summaries))
    yield b'"recent_sessions":%b' % json_bytes(summaries)
    yield b'"recent_observations":%b' % json_bytes(list(context.observations))
    if context.explanation is not None:
        yield b'"explain":%b' % json_bytes(context.explanation)


def response(answer: object, status: int = 200, *, headers: Mapping[str, str] = NONE) -> Response:
    """What an operation answered: JSON, or nothing but headers."""
    counts = {REDACTED: getattr(answer, "redacted", 0), OMITTED: getattr(answer, "omitted", 0)}
    every = {**headers, **{name: str(count) for name, count in counts.items() if count}}
    if answer is None or isinstance(answer, c.Appended):
        return Response(None, 204, every)
    noun = answer.rows if isinstance(answer, Rows) else answer
    return Response(json_bytes(noun), status, every, media_type=JSON)
