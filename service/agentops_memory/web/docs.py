"""What the service tells of its API, for machines and for people."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from .. import __version__
from ..api.docs_page import Page, page
from ..api.kit.endpoint import Api
from ..api.kit.gate import Door
from ..api.kit.openapi import Operation, document
from ..domain.model.access import Role

TITLE = "agentops-memory"


class Description(BaseModel):
    """GET /openapi.json."""

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, str]]
    paths: dict[str, Any]
    components: dict[str, Any]


class About:
    """The operations that are of no protocol; the description has them with those of the last."""

    def __init__(self, apis: Sequence[Api], more: Sequence[Operation], door: Door) -> None:
        *self._others, self._last = apis
        self._more = more
        self._door = door

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
        self._door.enter(request, Role.READER)
        return JSONResponse(await asyncio.to_thread(lambda: self._described))

    async def _docs(self, request: Request) -> Response:
        self._door.enter(request, Role.READER)
        shown = await asyncio.to_thread(lambda: self._page)
        return HTMLResponse(shown.content, headers={"Content-Security-Policy": shown.policy})

    # Neither is made before it is asked for: it takes longer than the rest of the start.

    @cached_property
    def _described(self) -> dict[str, Any]:
        last = replace(self._last, operations=[*self._last.operations, *self.operations])
        told = [api for api in (last, *self._others) if api.is_described]
        return document(told, title=TITLE, version=__version__)

    @cached_property
    def _page(self) -> Page:
        return page(self._described)
