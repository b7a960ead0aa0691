"""Which connection a request comes from, and which memories that works on."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from agentops_memory_client.contract.service import MemoryService

from ..api.kit.gate import current_caller
from ..domain.model.access import Caller, KeyId, TenantId
from ..settings.profile import Profile
from .connection import Connection, SessionNames

if TYPE_CHECKING:
    from .server import Incoming

SESSION = "Mcp-Session-Id"

Owner = tuple[TenantId, KeyId | None]  # one has no room in what another names


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The connections of a service. What is not told by a request is not known of it."""

    profile: Profile
    service: Callable[[Callable[[], Caller], Mapping[str, str]], MemoryService]  # caller, trace
    clock: Callable[[], datetime]
    names: defaultdict[Owner, SessionNames] = field(
        default_factory=lambda: defaultdict(SessionNames)
    )

    def of(self, asked: "Incoming") -> Connection:
        """The connection of a request that came in by the door.

        One that sends no id, as the protocol has it since 2026-07-28, is that of all
        requests of one program for one project on one day.
        """
        request = cast(Request, asked.request)
        caller = current_caller(request)
        id_ = request.headers.get(SESSION)
        told = id_ or f"{_program(asked)} {self.clock():%Y-%m-%d}"
        return Connection(
            service=self.service(lambda: current_caller(request), _trace(asked, request)),
            project=request.state.project,
            profile=self.profile,
            own_session=_own_session(caller, request.state.project, told),
            names=self.names[caller.tenant, caller.key],
            is_lasting=id_ is not None,
        )


def _own_session(caller: Caller, project: str, told: str) -> str:
    """The session of a connection: another for each key and project, whatever id it sends."""
    parts = (caller.tenant, caller.key, project, told)
    return f"mcp-{sha256(repr(parts).encode()).hexdigest()[:24]}"


def _program(asked: "Incoming") -> str:
    """The name of the program that asks, if it tells it."""
    told = asked.session.client_params
    return told.client_info.name if told is not None else ""


def _trace(asked: "Incoming", request: Request) -> Mapping[str, str]:
    """The trace that the message belongs to, or else its HTTP request."""
    told = (asked.meta or {}).get("traceparent")
    if isinstance(told, str):
        return {"traceparent": told}
    of_request: dict[str, str] = request.state.trace
    return of_request
