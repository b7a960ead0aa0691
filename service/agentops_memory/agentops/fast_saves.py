"""A plain `POST /observations`, saved in front of everything else.

What it does not know it declines. What is refused it leaves to the long way, too, which answers
everything else with the same bytes.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import Scope

from ..errors import Refusal
from ..http.edge.middleware import Body
from ..http.endpoint import CHARGED, FAILED, Gate
from ..http.json_reader import parsed
from ..http.protocol import REDACTED
from ..memory.model.access import Caller, Role
from ..memory.model.memory import Draft
from ..memory.redactor import Redactor
from ..memory.saves import SAVE
from ..telemetry import BEGAN, Telemetry, hide_by, log_answered
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
        headers = self.heads.read(scope["headers"])
        if headers is None:
            return None
        scope[BEGAN], metrics = time.perf_counter(), self.telemetry.metrics
        metrics.in_flight += 1
        try:
            caller = self._identified(headers, scope)
            if (received := await body()) is None:
                return None
            text, has_waited = received
            if has_waited:  # by what the keys say now
                caller = self._identified(headers, scope)
            hide_by(lambda: self.gate.rules(caller))
            draft = wire.draft(m.body(m.ObservationBody, parsed(text)))
            redactor = Redactor(self.gate.rules(caller))
            clean = redactor.draft(draft)
        except Exception as error:  # nothing is stored
            if not isinstance(error, Refusal):
                log.exception("request takes the slow path")
            return None
        else:
            return await self._saved(scope, caller, clean, redactor.count)
        finally:
            metrics.in_flight -= 1

    def _identified(self, headers: Mapping[str, str], scope: Scope) -> Caller:
        """Who asks, as the gate lets in: before anything of the body is waited for or read."""
        caller = self.gate.identify(headers)
        if CHARGED not in scope:
            self.gate.require_rate(caller.key)
            scope[CHARGED] = True
        caller.require(Role.WRITER)
        return caller

    async def _saved(
        self, scope: Scope, caller: Caller, draft: Draft, redacted: int
    ) -> tuple[int, bytes] | None:
        try:
            window = self.agentops.dedupe_window
            saved = await self.agentops.engine.write(caller, SAVE, draft, window)
        except Exception as error:  # noqa: BLE001 - the long way raises it
            scope[FAILED] = error
            return None
        except BaseException:  # the service ends before the answer
            self._log(scope, caller, 500)
            raise
        metrics = self.telemetry.metrics
        metrics.tally(DEDUP, saved.action.value)
        for measure, count in ((SUPERSEDED, saved.superseded), (REDACTIONS, redacted)):
            if count:
                metrics.tally(measure, by=count)
        self._log(scope, caller, CREATED)
        body = wire.saved(saved, None, redacted)
        lines = {REDACTED: redacted or "", WARNING: body.warning or ""}
        first = "".join([f"{name.lower()}: {value}\r\n" for name, value in lines.items() if value])
        answer = json_bytes(body)
        return CREATED, b"%bcontent-length: %d\r\n%b%b" % (
            first.encode("latin-1"), len(answer), self.tail, answer,
        )  # fmt: skip

    def _log(self, scope: Scope, caller: Caller, status: int) -> None:
        client, seconds = scope.get("client"), time.perf_counter() - scope[BEGAN]
        by = client[0] if client else "", caller.tenant, caller.key_name
        log_answered(PATH, seconds, self.telemetry.metrics, method="POST", status=status, by=by)
