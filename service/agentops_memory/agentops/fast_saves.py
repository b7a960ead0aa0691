"""A plain `POST /observations`, saved in front of everything else.

What it does not know it declines. What is refused it leaves to the long way, too, which answers
everything else with the same bytes.
"""

import logging
import time
from dataclasses import dataclass

from starlette.types import Scope

from ..errors import Refusal
from ..http.edge.middleware import Body
from ..http.endpoint import FAILED, Gate
from ..http.json_reader import parsed
from ..http.protocol import REDACTED
from ..memory.model.access import Role
from ..memory.redactor import Redactor
from ..memory.saves import SAVE
from ..telemetry import Telemetry, hide_by, log_answered
from ..telemetry.measures import DEDUP, REDACTIONS, SUPERSEDED
from . import models as m
from . import wire
from .fast_reads import PlainHeads
from .operations import AgentOps
from .wire import WARNING, json_bytes

PATH = "/observations"
CREATED = 201

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FastSaves:
    """Saves what is plain, by the rules of the long way; where no spans are sent."""

    agentops: AgentOps
    gate: Gate
    heads: PlainHeads
    tail: bytes  # of every head
    telemetry: Telemetry

    async def answer(self, scope: Scope, body: Body) -> tuple[int, bytes] | None:
        """The status and the rest of the answer; None if the long way is to answer."""
        began, metrics = time.perf_counter(), self.telemetry.metrics
        headers = self.heads.read(scope["headers"]) if scope["path"] == PATH else None
        given = None if headers is None else await body()
        if headers is None or given is None:
            return None
        try:
            caller = self.gate.identify(headers)
            caller.require(Role.WRITER)
            hide_by(lambda: self.gate.rules(caller))
            draft = wire.draft(m.body(m.ObservationBody, parsed(given)))
            redactor = Redactor(self.gate.rules(caller))
            clean = redactor.draft(draft)
            self.gate.require_rate(caller.key)
        except Exception as error:  # nothing is stored or counted
            if not isinstance(error, Refusal):
                log.exception("request takes the slow path")
            return None
        metrics.in_flight += 1
        try:
            saved = await self.agentops.engine.write(
                caller, SAVE, clean, self.agentops.dedupe_window
            )
        except Exception as error:  # noqa: BLE001 - the long way raises it
            scope[FAILED] = error
            return None
        finally:
            metrics.in_flight -= 1
        metrics.tally(DEDUP, saved.action.value)
        for measure, count in ((SUPERSEDED, saved.superseded), (REDACTIONS, redactor.count)):
            if count:
                metrics.tally(measure, by=count)
        client = scope.get("client")
        log_answered(
            PATH, time.perf_counter() - began, metrics, method="POST", status=CREATED,
            by=(client[0] if client else "", caller.tenant, caller.key_name),
        )  # fmt: skip
        told = wire.saved(saved, None, redactor.count)
        lines = {REDACTED: redactor.count or "", WARNING: told.warning or ""}
        first = "".join([f"{name.lower()}: {value}\r\n" for name, value in lines.items() if value])
        answer = json_bytes(told)
        return CREATED, b"%bcontent-length: %d\r\n%b%b" % (
            first.encode("latin-1"), len(answer), self.tail, answer,
        )  # fmt: skip
