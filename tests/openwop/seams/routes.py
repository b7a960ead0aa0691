"""The routes of the seams, beside those of the protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.errors import Unauthenticated
from agentops_memory.http.bodies import WRITTEN, Param, whole_number
from agentops_memory.http.gate import admission
from agentops_memory.http.protocol import Handler, Operation
from agentops_memory.memory.access import Role, TenantId
from agentops_memory.openwop.api import Serving, limit, op
from agentops_memory.openwop.host_runs import RunEvents
from agentops_memory.openwop.routes import LISTED, operations as openwop_operations

from . import bodies as b, proposals
from .commitments import SeamCommitments
from .discovery import seam_discovery
from .memory import SeamMemory, list_entries
from .passes import SeamPasses
from .requests import JsonObject
from .runs import RUNS, SeamRuns, poll_events
from .seeding import Seeding

SPAN = "openwop_seam"
NO_KEY = "The conformance seams need a key."
RUN = f"{RUNS}/{{runId}}"
HOSTS = ("sample", "openwop-app")  # whose paths a command line, and an application, ask for
AFTER = Param(
    name="after",
    kind="integer",
    help="Only events after this sequence number.",
    read=whole_number(),
)
LAST = Param(
    name="lastSequence", kind="integer", help="After this sequence, too.", read=whole_number()
)


def operations(services: Serving, has_key: Callable[[TenantId], bool]) -> Sequence[Operation]:
    """Every operation of the protocol, and the seams; `has_key` says whether one opens a tenant."""
    served = {each.name: each for each in openwop_operations(services)}
    seeding = Seeding(serving=services)
    runs = SeamRuns(services=services, seeding=seeding, has_key=has_key)
    seams = [
        *_runs(runs, served), *_memory(services, seeding), *_passes(services, seeding),
        _commitment(services), *proposals.operations(services),
    ]  # fmt: skip
    for host in HOSTS:
        seams += _aliases(f"/v1/host/{host}/memory", host.replace("-", "_"), served)

    def discovery(serving: Serving) -> JsonObject:
        return seam_discovery(serving, runs.fixtures())

    return openwop_operations(services, [_seam(each) for each in seams], discovery)


def _runs(seams: SeamRuns, served: Mapping[str, Operation]) -> Sequence[Operation]:
    return (
        Operation(
            method="POST", path=RUNS, name="openwop_seam_start_run", role=Role.WRITER, status=201,
            summary="Run a workflow that tests memory; it is over when this is answered.",
            handler=seams.open_run, body=b.SeamRunBody, takes_key=True,
            refusals=(409,),
        ),
        Operation(
            method="GET", path=RUN, name="openwop_seam_get_run", role=Role.READER,
            summary="One run, and what its workflow has found.",
            handler=seams.get_run, refusals=(404,),
        ),
        replace(
            served["openwop_run_events"], path=f"{RUN}/events", name="openwop_seam_run_events"
        ),
        op(seams.services, "GET", f"{RUN}/events/poll", "seam_poll_events",
           "The same; nothing is waited for.", poll_events, role=Role.READER, answer=RunEvents,
           query=(AFTER, LAST, limit()),
           refusals=(404,)),
        Operation(
            method="POST", path=f"{RUN}:fork", name="openwop_seam_fork_run", role=Role.WRITER,
            status=201, summary="Replay an ended run, or branch off from it.",
            handler=seams.fork_run, body=b.SeamForkBody, takes_key=True,
            refusals=(404, 409, 422),
        ),
    )  # fmt: skip


def _memory(services: Serving, seeding: Seeding) -> Sequence[Operation]:
    memory = SeamMemory(seeding=seeding)
    return (
        Operation(
            method="POST", path="/v1/test/memory/seed", name="openwop_seam_seed",
            role=Role.WRITER, status=201,
            summary="Put entries, which may have ended; a live one with an id of theirs is gone.",
            handler=memory.seed, body=b.SeedsBody, takes_key=True,
            headers=WRITTEN,
        ),
        op(services, "GET", "/v1/memory/{memoryRef:path}", "seam_list_ref",
           "Live entries of a ref, newest first.", list_entries, role=Role.READER,
           query=LISTED),
    )  # fmt: skip


def _passes(services: Serving, seeding: Seeding) -> Sequence[Operation]:
    passes = SeamPasses(services=services, seeding=seeding)
    return (
        Operation(
            method="POST", path="/v1/test/memory/compact", name="openwop_seam_compact",
            role=Role.WRITER, summary="Compact a ref, and show what its archive says.",
            handler=passes.compact, body=b.SeamRefBody, takes_key=True,
            headers=WRITTEN, refusals=(409,),
        ),
        Operation(
            method="POST", path="/v1/host/sample/memory/distill", name="openwop_seam_distill",
            role=Role.WRITER, summary="Distill texts, or a ref, which is filled if it is empty.",
            handler=passes.distill, body=b.SeamDistillBody,
            headers=WRITTEN, refusals=(408, 409, 413, 422, 507),
        ),
        Operation(
            method="POST", path="/v1/host/sample/memory/consolidate",
            name="openwop_seam_consolidate", role=Role.WRITER,
            summary="Consolidate a ref, which is filled if it is empty.",
            handler=passes.consolidate, body=b.SeamConsolidateBody,
            refusals=(408, 409, 413, 422, 507),
        ),
    )  # fmt: skip


def _commitment(services: Serving) -> Operation:
    return Operation(
        method="POST", path="/v1/host/sample/commitment/fire", name="openwop_seam_fire_commitment",
        role=Role.WRITER, summary="Put an entry, arm a commitment of it, and satisfy it twice.",
        handler=SeamCommitments(services=services).fire, body=b.SeamFireBody,
        refusals=(408, 413, 507),
    )  # fmt: skip


def _aliases(path: str, host: str, served: Mapping[str, Operation]) -> Sequence[Operation]:
    """The adapter's operations as another host has them."""
    entry, name = f"{path}/{{memoryId:path}}", f"openwop_seam_{host}"
    return (
        replace(served["openwop_list"], path=path, name=f"{name}_list"),
        replace(served["openwop_get"], path=entry, name=f"{name}_get"),
        replace(served["openwop_delete"], path=entry, name=f"{name}_delete"),
    )


def _seam(operation: Operation) -> Operation:
    """The operation in the seams' span, for callers with a key alone."""
    handler = partial(_keyed, operation.handler)
    return replace(operation, handler=handler, span=SPAN)


async def _keyed(handler: Handler, request: Request) -> Response:
    """Also where the service has been opened again since its start."""
    if admission(request).admitted.key is None:
        raise Unauthenticated(NO_KEY)
    return await handler(request)
