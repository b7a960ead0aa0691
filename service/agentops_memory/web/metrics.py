"""GET /metrics: the measurements, for Prometheus."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ..api.kit.endpoint import Gate
from ..api.kit.protocol import Operation
from ..domain.errors import Denied
from ..domain.model.access import DEFAULT_TENANT, Caller, Role

PATH = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """The measurements of all tenants together; to none but the default one, unless it is open."""

    refresh: Callable[[], Awaitable[None]]
    exposition: Callable[[str], tuple[bytes, str]]  # for a header Accept
    gate: Gate
    is_open: bool

    @property
    def operation(self) -> Operation:
        """All measurements, for whoever may see them."""
        return Operation(
            method="GET",
            path=PATH,
            name="metrics",
            summary="Measurements, in the text format of Prometheus or as OpenMetrics.",
            handler=self._metrics,
            media_type="text/plain",
            role=None if self.is_open else Role.READER,
            refusals=() if self.is_open else (503,),
        )

    async def _metrics(self, request: Request) -> Response:
        if not self.is_open:
            _require_all(self.gate.admit(request, Role.READER, is_limited=False))
        await self.refresh()
        accept = request.headers.get("accept", "")
        text, media_type = await asyncio.to_thread(self.exposition, accept)
        return Response(text, media_type=media_type)


def _require_all(caller: Caller) -> None:
    if caller.tenant != DEFAULT_TENANT or not caller.projects.are_everything:
        raise Denied("Measurements are of all: they want a key of default for every project.")
