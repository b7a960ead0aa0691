"""What is answered: each answer names the request, a refusal in its body as well."""

import re
from uuid import uuid4

from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...domain.errors import Refusal
from ..kit.bodies import JSON, json
from ..kit.refusals import Refusals
from . import wire

REQUEST_ID = "X-Request-Id"
REFUSALS = Refusals(statuses={"too_large": 400})

_SANE = re.compile(r"[!-~]{1,128}")  # visible ASCII


def answered(
    request: Request, model: BaseModel, status: int = 200, *, redacted: int = 0
) -> Response:
    """One model; and how many secrets were kept out of what was written."""
    return _named(request, json(model, status, redacted=redacted))


def nothing(request: Request) -> Response:
    """No content."""
    return _named(request, Response(status_code=204))


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request."""
    return _Refused(refusal)


class _Refused(Response):
    """A refusal. Who asked for what is known when it is sent: it names the request and the id."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal
        super().__init__(
            status_code=REFUSALS.status(refusal.code),
            headers=REFUSALS.headers_of(refusal),
            media_type=JSON,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identified, type_ = _request_id(scope), REFUSALS.type(self._refusal.code)
        problem = wire.problem(self._refusal, type_, scope.get("path_params", {}), identified)
        self.body = problem.model_dump_json().encode()
        self.headers["Content-Length"] = str(len(self.body))
        self.headers[REQUEST_ID] = identified
        await super().__call__(scope, receive, send)


def _named(request: Request, response: Response) -> Response:
    response.headers[REQUEST_ID] = _request_id(request.scope)
    return response


def _request_id(scope: Scope) -> str:
    """The id that the client gave the request; a fresh one if it gave none, or a strange one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _SANE.fullmatch(given) else str(uuid4())
