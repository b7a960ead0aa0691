"""Ids of requests: what a client calls one by, also in what refuses it."""

import re
from collections.abc import Callable, Mapping
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import Refusal
from ..telemetry import hidden
from .bodies import JSON
from .refusals import Refusals

REQUEST_ID = "X-Request-Id"

_SANE = re.compile(r"[!-~]{1,128}")  # visible ASCII


def request_id(headers: Mapping[str, str]) -> str:
    """The id that the client gave the request; a fresh one for none, a strange or a secret one."""
    given = headers.get(REQUEST_ID, "")
    return given if _SANE.fullmatch(given) and hidden(given) == given else str(uuid4())


class Refused(Response):
    """A refusal; the request, and its id, are known when it is sent."""

    def __init__(
        self, refusal: Refusal, refusals: Refusals, content: Callable[[Scope, str], bytes]
    ) -> None:
        self._content = content
        super().__init__(
            status_code=refusals.status(refusal.code),
            headers=refusals.headers_of(refusal),
            media_type=JSON,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id_ = request_id(Headers(scope=scope))
        self.body = self._content(scope, id_)
        self.headers["Content-Length"] = str(len(self.body))
        self.headers[REQUEST_ID] = id_
        await super().__call__(scope, receive, send)
