"""The domain's nouns as responses: JSON, within the bound of one answer."""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel
from starlette.responses import Response

from ...domain.model.search import Context, Found, Wanted
from ...domain.recall.budget import Budget
from ..kit.http import fitting
from . import explain as why
from . import wire

JSON = "application/json"
OMITTED = "X-Results-Omitted"
REDACTED = "X-Redacted"
NONE: Mapping[str, str] = {}


def json(
    model: BaseModel, status: int = 200, *, redacted: int = 0, headers: Mapping[str, str] = NONE
) -> Response:
    """One model; and how many secrets were kept out of what was written."""
    every = {**headers, REDACTED: str(redacted)} if redacted else headers
    return Response(wire.json_bytes(model), status, every, media_type=JSON)


def nothing(*, redacted: int = 0) -> Response:
    """No content; and how many secrets were kept out of what was written."""
    return Response(status_code=204, headers={REDACTED: str(redacted)} if redacted else None)


def json_list(models: Iterable[BaseModel], count: int) -> Response:
    items = fitting(wire.json_bytes(model) for model in models)
    return _answer(wire.json_array(items), omitted=count - len(items))


def json_around(centre: int, models: Iterable[BaseModel]) -> Response:
    """A list of which the parts nearest to the centre fit first."""
    items = [wire.json_bytes(model) for model in models]
    nearest = sorted(range(len(items)), key=lambda at: abs(at - centre))
    kept = sorted(nearest[: len(fitting(items[at] for at in nearest))])
    content = wire.json_array(items[at] for at in kept)
    return _answer(content, omitted=len(items) - len(kept))


def search(found: Found, wanted: Wanted) -> Response:
    """A list of hits; beside their explanation, if one is wanted."""
    if not wanted:
        return json_list(map(wire.search_hit, found.hits), len(found.hits))
    models = (
        wire.search_hit(hit, why.item(hit, place, found) if wanted.explain else None)
        for place, hit in enumerate(found.hits, start=1)
    )
    explanation = why.answer(found, wanted)
    items = fitting(map(wire.json_bytes, models), beside=len(wire.json_bytes(explanation)))
    shown = why.shown(explanation, found.hits[: len(items)])
    content = b'{"results":%b,"explain":%b}' % (wire.json_array(items), wire.json_bytes(shown))
    return _answer(content, omitted=len(found.hits) - len(items))


def context(told: Context, budget: Budget, wanted: Wanted) -> Response:
    """Summaries, then memories; and their explanation, if one is wanted."""
    lines = [
        *map(wire.json_bytes, map(wire.context_summary, told.summaries)),
        *map(wire.json_bytes, _context_lines(told, budget, wanted)),
    ]
    explanation = (
        why.answer(told.found, wanted, budget=budget, packed=told.packed) if wanted else None
    )
    beside = len(wire.json_bytes(explanation)) if explanation else 0
    fit, first = fitting(lines, beside=beside), len(told.summaries)
    content = b'{"recent_sessions":%b,"recent_observations":%b' % (
        wire.json_array(fit[:first]),
        wire.json_array(fit[first:]),
    )
    if explanation:
        shown = why.shown(explanation, told.found.hits[: max(len(fit) - first, 0)])
        content += b',"explain":%b' % wire.json_bytes(shown)
    return _answer(content + b"}", omitted=len(lines) - len(fit))


def _context_lines(told: Context, budget: Budget, wanted: Wanted) -> Iterable[BaseModel]:
    for at, hit in enumerate(told.found.hits):
        explain = None
        if wanted.explain and told.packed:
            is_cut = len(hit.memory.text.content) > budget.content_chars
            explain = why.item(hit, told.packed.places[at], told.found, is_cut=is_cut)
        yield wire.context_line(hit, budget.content_chars, explain)


def _answer(content: bytes, *, omitted: int) -> Response:
    headers = {OMITTED: str(omitted)} if omitted else None
    return Response(content, headers=headers, media_type=JSON)
