"""The JSON of AgentOps REST as nouns. What a newer service adds is ignored."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .errors import UnexpectedAnswer
from .models import Appended, Context, Explanation, Found, Hit, Line

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

REDACTED = "x-redacted"
WARNING = "x-memory-warning"
OMITTED = "x-results-omitted"
ERASURE = "x-erasure-id"
Headers = Mapping[str, str]  # of any case that the mapping finds in lower case
Reader = Callable[[bytes, Headers], T]


def noun(kind: type[T]) -> Reader[T]:
    """The reader of a noun, whose headers may count secrets and have a warning; or of a list."""

    def read(body: bytes, headers: Headers) -> T:
        document = _parsed(body)
        if isinstance(document, dict):
            document |= {"redacted": _count(headers, REDACTED), "warning": headers.get(WARNING)}
        return read_as(kind, document)

    return read


def found(body: bytes, headers: Headers) -> Found:
    """A search; a list, or an object beside an explanation."""
    document = _parsed(body)
    answer = document if isinstance(document, dict) else {"results": document}
    return Found(
        hits=tuple(read_as(list[Hit], answer.get("results"))),
        omitted=_count(headers, OMITTED),
        explanation=_explanation(answer),
    )


def context(body: bytes, headers: Headers) -> Context:
    document = json_object(body)
    sessions = read_as(list[dict[str, Any]], document.get("recent_sessions"))
    return Context(
        summaries=tuple(read_as(list[str], [it.get("summary", "") for it in sessions])),
        observations=tuple(read_as(list[Line], document.get("recent_observations"))),
        omitted=_count(headers, OMITTED),
        explanation=_explanation(document),
    )


def erasure(body: bytes, headers: Headers) -> str | None:
    """The receipt of a deletion, if there is one; the answer is empty, or says `deleted`."""
    if body and json_object(body).get("status") != "deleted":
        raise UnexpectedAnswer("The service did not confirm the deletion.")
    return headers.get(ERASURE)


def appended(body: bytes, headers: Headers) -> Appended:
    """What became of messages; the answer has headers alone."""
    if body:
        raise UnexpectedAnswer("The service returned an unexpected body for messages.")
    return Appended(redacted=_count(headers, REDACTED), warning=headers.get(WARNING))


def health(body: bytes, _: Headers) -> str:
    return read_as(str, json_object(body).get("status"))


def problem(body: bytes) -> tuple[str, str | None, Mapping[str, Any]]:
    """Why something was refused: a sentence, and the code and details of protocols that have them.

    In either form `error` is the sentence, or the code beside a `message`.
    """
    document = json_object(body)
    error = read_as(str, document.get("error"))
    if "message" not in document:
        return error, None, {}
    sentence, details = read_as(str, document["message"]), document.get("details")
    details = details if isinstance(details, dict) else {}
    faults = read_as(list[dict[str, str]], details.get("fields", []))
    named = "; ".join(f"{it.get('field')} {it.get('problem')}" for it in faults)
    return f"{sentence} {named}." if named else sentence, error, details


def _explanation(document: Mapping[str, Any]) -> Explanation | None:
    explanation = document.get("explain")
    return None if explanation is None else read_as(dict[str, Any], explanation)


def read_as(kind: type[T], value: object) -> T:
    """A noun. UnexpectedAnswer, whose cause is left out: it quotes the value."""
    read: TypeAdapter[T] = _adapter(cast(Hashable, kind))
    with suppress(ValueError):  # what pydantic raises is one
        return read.validate_python(value)
    raise UnexpectedAnswer("The service returned an unexpected answer.")


@cache
def _adapter(kind: Hashable) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # noqa: PLC0415 - not at the top: it takes 0.1 s

    return TypeAdapter(cast(Any, kind))


def json_object(body: bytes) -> dict[str, Any]:
    """The members of an answer. UnexpectedAnswer for what is no object."""
    document = _parsed(body)
    if not isinstance(document, dict):
        raise UnexpectedAnswer("The service returned something other than a JSON object.")
    return document


def _parsed(body: bytes) -> Any:
    from pydantic_core import from_json  # noqa: PLC0415 - as above

    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UnexpectedAnswer("The service returned something other than JSON.") from error


def _count(headers: Headers, name: str) -> int:
    text = headers.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
