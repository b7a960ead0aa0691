"""What the service tells of its API, for machines and for people."""

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from .. import __version__
from ..api.docs_page.page import Page, page
from ..api.kit.endpoint import Gate
from ..api.kit.openapi import Described, document
from ..api.kit.protocol import Operation
from ..domain.model.access import Role

TITLE = "agentops-memory"


class Description(BaseModel):
    """GET /openapi.json."""

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, str]]
    paths: dict[str, Any]
    components: dict[str, Any]


class DocsEndpoints:
    """The operations that are of no protocol; the description has them with those of the last."""

    def __init__(self, served: Sequence[Described], more: Sequence[Operation], gate: Gate) -> None:
        self._served = served
        self._more = more
        self._gate = gate

    @property
    def operations(self) -> list[Operation]:
        """The description, twice, and what more there is."""
        return [
            *self._more,
            Operation(
                method="GET",
                path="/openapi.json",
                name="openapi",
                summary="This description, in OpenAPI 3.1.",
                handler=self._openapi,
                answer=Description,
                role=Role.READER,
                refusals=(503,),
            ),
            Operation(
                method="GET",
                path="/docs",
                name="docs",
                summary="This description, on a page.",
                handler=self._docs,
                media_type="text/html",
                role=Role.READER,
                refusals=(503,),
            ),
        ]

    async def _openapi(self, request: Request) -> Response:
        self._gate.admit(request, Role.READER)
        return JSONResponse(await asyncio.to_thread(lambda: self._described))

    async def _docs(self, request: Request) -> Response:
        self._gate.admit(request, Role.READER)
        shown = await asyncio.to_thread(lambda: self._page)
        return HTMLResponse(shown.content, headers={"Content-Security-Policy": shown.policy})

    # Neither is made before it is asked for: it takes longer than the rest of the start.

    @cached_property
    def _described(self) -> dict[str, Any]:
        *others, (last, operations) = self._served
        described = [(last, [*operations, *self.operations]), *others]
        documented = [each for each in described if each[0].problem is not None]
        return document(documented, title=TITLE, version=__version__)

    @cached_property
    def _page(self) -> Page:
        return page(self._described)
