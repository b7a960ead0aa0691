"""How methods of OpenWOP's client are declared: a signature, and what is sent for it."""

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Concatenate, cast, get_args

from pydantic.alias_generators import to_camel

from ..contract.errors import Invalid, NotFound
from ..contract.models import Headers, json_object, read_as
from ..contract.service import Asks, Call, Method, P, T, once, params, plain, with_signature
from ..transport import Exchange

Json = dict[str, Any]
# The member of an answer that is returned, or what makes it of the answer and what was sent.
Answer = str | Callable[[Json, Mapping[str, Any]], object]

NO_ENTRY = "memory entry not found"  # the one sentence for whatever is not there
LONGEST = 256  # code points of a ref, or of an entry's id

_SURROGATE = re.compile("[\ud800-\udfff]")
_REFUSAL: Any = object()


class Part(Asks):
    """A part of the client of OpenWOP."""

    _exchange: Exchange
    _run_id: str | None = None  # of a part of a run: whatever it sends names the run

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange


def sends(
    verb: str, path: str, *, answer: Answer = "", absent: Any = _REFUSAL,
    within: timedelta | None = None,
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:  # fmt: skip
    """Declare a method by its signature: it sends its arguments, and reads what it returns.

    Its body, if it has one, returns what is sent `also`, or in the place of an argument.
    `absent` is returned for an entry that is not there, and for what can be no name of one.
    """

    def declare(question: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        signature = inspect.signature(question)
        returned = signature.return_annotation
        kind: type[T] = get_args(returned)[0] if absent is None else returned

        async def send(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
            fields = signature.bind(self, *args, **kwargs).arguments
            del fields["self"]
            names = [fields[it] for it in ("memory_ref", "memory_id") if it in fields]
            if absent is not _REFUSAL and not all(map(_is_name, names)):
                return absent  # type: ignore[no-any-return]
            fields.setdefault("run_id", self._run_id)
            fields |= cast("Json | None", question(self, *args, **kwargs)) or {}
            call = call_of(kind, verb, path, fields, answer=answer, within=within)
            try:
                return await self._ask(call)
            except NotFound as refusal:
                if absent is _REFUSAL or str(refusal) != NO_ENTRY:
                    raise
                return absent  # type: ignore[no-any-return]

        return Method(with_signature(question, send))

    return declare


def call_of(
    kind: type[T], verb: str, path: str, fields: Mapping[str, Any], *, answer: Answer = "",
    within: timedelta | None = None,
) -> Call[T]:  # fmt: skip
    """The call that sends the fields: in the path, in the query of a GET or DELETE, else as JSON.

    Invalid for a text in a query that would be sent as another.
    """
    steps = [fields[it[1:-1]] if it.startswith("{") else it for it in path.split("/")]
    named = {
        to_camel(name): plain(value)
        for name, value in fields.items()
        if value is not None and name != "idempotency_key" and f"{{{name}}}" not in path
    }
    has_body = verb not in ("GET", "DELETE")
    faults = [] if has_body else [name for name, it in named.items() if _SURROGATE.search(str(it))]
    if faults:
        raise Invalid(f"{', '.join(faults)}: a lone surrogate is not text.")

    def read(body: bytes, _: Headers) -> T:
        if kind is bytes:
            return body  # type: ignore[return-value]
        document = json_object(body)
        if callable(answer):
            return read_as(kind, answer(document, fields))
        return read_as(kind, document.get(answer) if answer else document)

    return Call(
        operation=f"{verb} {path}", method=verb, path=("v1", "host", "agentops-memory", *steps),
        query={} if has_body else params(**named), body=named if has_body else None,
        headers={} if verb == "GET" else once(fields.get("idempotency_key")), within=within,
        read=read,
    )  # fmt: skip


def _is_name(text: str) -> bool:
    """Whether a text can name something in a request: others are sent as another, or as none."""
    return 0 < len(text) <= LONGEST and "\0" not in text and not _SURROGATE.search(text)
