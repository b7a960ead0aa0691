"""What is answered: JSON with the id of the request, in refusals in the body as well."""

import re
from uuid import uuid4

from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...domain.errors import Refusal, TooMany
from ...domain.stores.rules import NO_ENTRY, NO_STORE, NO_VERSION
from ...domain.text.normalization import clean, cut
from . import models as m
from .wire import BadField

JSON = "application/json"
REDACTED = "X-Redacted"
REQUEST_ID = "X-Request-Id"
SHOWN_ID = 100  # characters of an id that was not found

INVALID, MISSING, CONFLICT, FAILED = (
    "invalid_request_error",
    "not_found_error",
    "conflict_error",
    "api_error",
)
ERRORS = {  # the code of a refusal -> the status and the type of the error
    "invalid_input": (400, INVALID),
    "validation_error": (400, INVALID),
    "too_large": (400, INVALID),
    "unauthenticated": (401, "authentication_error"),
    "denied": (403, "permission_error"),
    "not_found": (404, MISSING),
    "no_path": (404, MISSING),
    "no_method": (405, INVALID),
    "too_slow": (408, INVALID),
    "constraint_violation": (409, CONFLICT),
    "stale": (409, CONFLICT),
    "path_taken": (409, CONFLICT),
    "archived": (409, CONFLICT),
    "already_done": (409, CONFLICT),
    "still_current": (409, CONFLICT),
    "too_many": (429, "rate_limit_error"),
    "failed": (500, FAILED),
    "db_locked": (503, FAILED),
    "storage_full": (503, FAILED),
    "timed_out": (503, FAILED),
    "unavailable": (503, FAILED),
    "over_quota": (507, FAILED),
}
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}

# The contract's sentences, by the code of a refusal or by the domain's own sentence.
BY_CODE = dict.fromkeys(("stale", "path_taken"), "Version or state conflict.")
NOT_FOUND = {
    NO_STORE: ("MemoryStore", "store_id"),
    NO_ENTRY: ("Memory", "entry_id"),
    NO_VERSION: ("MemoryVersion", "version_id"),
}

_SANE = re.compile(r"[!-~]{1,128}")  # visible ASCII


def request_id(scope: Scope) -> str:
    """The id that the client gave the request; a fresh one if it gave none, or a strange one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _SANE.fullmatch(given) else str(uuid4())


def json(model: BaseModel, status: int = 200, *, redacted: int = 0) -> Response:
    """One model; and how many secrets were kept out of what was written."""
    headers = {REDACTED: str(redacted)} if redacted else None
    return Response(model.model_dump_json().encode(), status, headers, media_type=JSON)


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request, in the shape of this protocol."""
    return _Refused(refusal)


class _Refused(Response):
    """A refusal. Who asked for what is known when it is sent: it names the request and the id."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self._status, self._type = ERRORS[refusal.code]
        super().__init__(status_code=self._status, headers=_headers(refusal), media_type=JSON)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identified = request_id(scope)
        problem = m.StoreProblem(
            error=m.StoreError(
                type=self._type,
                message=_sentence(self._refusal, scope.get("path_params", {})),
                param=self._refusal.field if isinstance(self._refusal, BadField) else None,
            ),
            request_id=identified,
        )
        self.body = problem.model_dump_json().encode()
        self.headers["Content-Length"] = str(len(self.body))
        self.headers[REQUEST_ID] = identified
        await super().__call__(scope, receive, send)


def _headers(refusal: Refusal) -> dict[str, str] | None:
    if isinstance(refusal, TooMany):
        return {"Retry-After": str(refusal.retry_after)}
    return HEADERS.get(ERRORS[refusal.code][0])


def _sentence(refusal: Refusal, ids: dict[str, str]) -> str:
    said = BY_CODE.get(refusal.code, str(refusal))
    kind, name = NOT_FOUND.get(said, ("", ""))
    if name not in ids:  # or what is answered again is gone, and the path never named it
        return said
    return f"{kind} '{cut(clean(ids[name]), SHOWN_ID)}' was not found."
