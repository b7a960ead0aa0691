"""The route table of OpenWOP's agent memory, and what its refusals look like."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..errors import Refusal
from ..http.bodies import REDACTED, answered, written
from ..http.openapi import document
from ..http.protocol import Operation, Protocol
from ..http.refusals import Refusals
from ..http.request_ids import Refused
from ..memory.model.access import Caller
from ..memory.redactor import Redaction
from ..telemetry import hide_too
from . import adapter, commitments, proposals
from .adapter import RefEntries
from .commitments import Commitments
from .memory import models as m
from .memory import routes as memory
from .memory import wire
from .memory.discovery import Discovery
from .memory.handlers import OpenWop
from .passes import routes as passes
from .proposals import Proposals
from .rules.forgetting import Forgetting
from .rules.passes.passes import Passes
from .rules.runs import Runs
from .rules.screen import marked

PREFIX = "/v1"
REPLAYED = "openwop-Idempotent-Replay"
REFUSALS = Refusals()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWopServices:
    """What the protocol is served over."""

    ref_entries: RefEntries
    runs: Runs
    commitments: Commitments
    passes: Passes
    forgetting: Forgetting
    proposals: Proposals
    redaction: Redaction
    clock: Callable[[], datetime]

    @property
    def handlers(self) -> OpenWop:
        """Those of runs."""
        return OpenWop(runs=self.runs, commitments=self.commitments)


OpenWopOperations = Callable[[OpenWopServices, Discovery], Sequence[Operation]]


def operations(
    services: OpenWopServices, discovery: Discovery, more: Sequence[Operation] = ()
) -> Sequence[Operation]:
    """Every operation of the protocol, and more that are described with them."""
    it, description = services, Description()
    described = [
        *adapter.operations(it.ref_entries),
        *memory.operations(it.handlers, discovery),
        *passes.operations(it.passes, it.forgetting, it.redaction),
        *commitments.operations(it.commitments),
        *proposals.operations(it.proposals),
        *more,
        *description.operations,
    ]
    description.described += described
    return described


class Description:
    """The description of this protocol alone."""

    def __init__(self) -> None:
        self.described: list[Operation] = []

    @property
    def operations(self) -> Sequence[Operation]:
        """The route that answers it."""
        return (
            Operation(
                method="GET", path=f"{PREFIX}/openapi.json", name="openwop_openapi",
                summary="This protocol, in OpenAPI 3.1.",
                handler=self.describe, answer=m.ProtocolDescription,
            ),
        )  # fmt: skip

    async def describe(self, _: Request) -> Response:
        return answered(await asyncio.to_thread(lambda: self._document))

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document([(PROTOCOL, self.described)], title=PROTOCOL.title, version="1.0")


def require(_: Request, caller: Caller) -> None:
    """Refuse whom this is not for; what is said of the request has its secrets taken out."""
    hide_too(lambda text: marked(text)[0])
    caller.require_refs()


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request."""

    known = wire.known(refusal)

    def content(_: Scope, id_: str) -> bytes:
        return written(wire.problem(known, REFUSALS.status(known.code), id_))

    return Refused(known, REFUSALS, content)


PROTOCOL = Protocol(
    title="OpenWOP agent memory",
    summary="Memory of hosts that run workflows of agents: refs, runs, events.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=m.OpenWopProblem,
    sent=("If-None-Match", "OpenWOP-Version"),
    read=(REDACTED, "ETag", REPLAYED),
    replayed=REPLAYED,
    require=require,
    is_closed=True,
)
