"""The JSON of AgentOps REST as nouns. What a newer service adds is ignored."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from .errors import UnexpectedAnswer
from .models import (
    Appended,
    Context,
    Explanation,
    Found,
    Hit,
    Imported,
    ImportPlan,
    Line,
    Observation,
    Revision,
    Saved,
    Session,
    SessionEnd,
    Stats,
    TimelineEntry,
)

T = TypeVar("T")
Written = TypeVar("Written", Session, SessionEnd, Saved, Observation, Imported)

REDACTED = "x-redacted"
OMITTED = "x-results-omitted"
ERASURE = "x-erasure-id"
Headers = Mapping[str, str]  # of any case that the mapping finds in lower case


def session(body: bytes, headers: Headers) -> Session:
    return _written(Session, body, headers)


def session_end(body: bytes, headers: Headers) -> SessionEnd:
    return _written(SessionEnd, body, headers)


def sessions(body: bytes, _: Headers) -> list[Session]:
    return _read(list[Session], _parsed(body))


def saved(body: bytes, headers: Headers) -> Saved:
    return _written(Saved, body, headers)


def observation(body: bytes, headers: Headers) -> Observation:
    return _written(Observation, body, headers)


def observations(body: bytes, _: Headers) -> list[Observation]:
    return _read(list[Observation], _parsed(body))


def revisions(body: bytes, _: Headers) -> list[Revision]:
    return _read(list[Revision], _parsed(body))


def found(body: bytes, headers: Headers) -> Found:
    """A search; a list, or an object beside an explanation."""
    given = _parsed(body)
    told = given if isinstance(given, dict) else {"results": given}
    return Found(
        hits=tuple(_read(list[Hit], told.get("results"))),
        omitted=_count(headers, OMITTED),
        explanation=_explanation(told),
    )


def context(body: bytes, headers: Headers) -> Context:
    given = _object(body)
    sessions = _read(list[dict[str, Any]], given.get("recent_sessions"))
    return Context(
        summaries=tuple(_read(list[str], [it.get("summary", "") for it in sessions])),
        observations=tuple(_read(list[Line], given.get("recent_observations"))),
        omitted=_count(headers, OMITTED),
        explanation=_explanation(given),
    )


def timeline(body: bytes, _: Headers) -> list[TimelineEntry]:
    return _read(list[TimelineEntry], _parsed(body))


def stats(body: bytes, _: Headers) -> Stats:
    return _read(Stats, _parsed(body))


def imported(body: bytes, headers: Headers) -> Imported:
    return _written(Imported, body, headers)


def import_plan(body: bytes, _: Headers) -> ImportPlan:
    return _read(ImportPlan, _parsed(body))


def erasure(body: bytes, headers: Headers) -> str | None:
    """The receipt of a deletion, if there is one; nothing else is answered to it."""
    if body:
        raise UnexpectedAnswer("The service answers a deletion with more than its receipt.")
    return headers.get(ERASURE)


def appended(body: bytes, headers: Headers) -> Appended:
    """What became of messages; nothing but a count of secrets is answered to them."""
    if body:
        raise UnexpectedAnswer("The service answers messages with more than it should.")
    return Appended(redacted=_count(headers, REDACTED))


def health(body: bytes, _: Headers) -> str:
    return _read(str, _object(body).get("status"))


def problem(body: bytes) -> str:
    """The sentence of a refusal."""
    return _read(str, _object(body).get("error"))


def _explanation(given: Mapping[str, Any]) -> Explanation | None:
    told = given.get("explain")
    return None if told is None else _read(dict[str, Any], told)


def _written(kind: type[Written], body: bytes, headers: Headers) -> Written:
    return replace(_read(kind, _parsed(body)), redacted=_count(headers, REDACTED))


def _read(kind: type[T], given: object) -> T:
    adapter: TypeAdapter[T] = _adapter(cast(Hashable, kind))
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        raise UnexpectedAnswer("The service answers with something else than expected.") from error


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def _object(body: bytes) -> dict[str, Any]:
    given = _parsed(body)
    if not isinstance(given, dict):
        raise UnexpectedAnswer("The service answers with something else than an object.")
    return given


def _parsed(body: bytes) -> Any:
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UnexpectedAnswer("The service answers with something else than JSON.") from error


def _count(headers: Headers, name: str) -> int:
    text = headers.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
