"""The routes of the seams; there are none unless the setting says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ...errors import Unauthenticated
from ...http.bodies import WRITTEN
from ...http.endpoint import admission
from ...http.protocol import Handler, Operation, Parameter
from ...memory.model.access import Role
from ..host_runs import RunEvents
from ..host_runs import operations as run_operations
from ..memory import models as m
from ..memory.handlers import OpenWop
from ..memory.parameters import BUDGET, IN_RUN, OF_RUN, REF, TAG, limit
from ..routes import OpenWopServices
from . import bodies as b
from . import models as s
from . import proposals
from .commitments import SeamCommitments
from .memory import SeamMemory
from .passes import SeamPasses
from .runs import RUNS, SeamRuns, SeamServices

SPAN = "openwop_seam"
NO_KEY = "The conformance seams need a key."
RUN = f"{RUNS}/{{runId}}"
HOSTS = ("sample", "openwop-app")  # whose paths a command line, and an application, ask for
AFTER = Parameter(name="after", kind="integer", help="After this sequence.")
LAST = Parameter(name="lastSequence", kind="integer", help="After this sequence, too.")
LISTED = (
    TAG, limit(100, 500), BUDGET,
    Parameter(name="rank", help="The order.", choices=("recency",)),
    Parameter(name="before", help="An entry's id: those older than it."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What is served of the seams, and which workflows can be run now."""

    operations: Sequence[Operation] = ()
    fixtures: Callable[[], Sequence[str]] = tuple


def seams(services: OpenWopServices, of_seams: SeamServices | None) -> Seams:
    """The seams over the services; nothing where they are off."""
    if of_seams is None:
        return Seams()
    runs, api = SeamRuns(services=services, seams=of_seams), services.handlers
    operations = [
        *_runs(runs, services),
        *_memory(services, of_seams),
        *_passes(services, of_seams),
        _commitment(services),
        *proposals.operations(services.proposals),
    ]
    for host in HOSTS:
        operations += _aliases(f"/v1/host/{host}/memory", host.replace("-", "_"), api)
    return Seams(
        operations=[_seam(each) for each in operations], fixtures=lambda: list(runs.fixtures())
    )


def _runs(seams: SeamRuns, services: OpenWopServices) -> Sequence[Operation]:
    of_runs = run_operations(services.runs, services.commitments.fire_due)
    [log] = [it for it in of_runs if it.name == "openwop_run_events"]
    return (
        Operation(
            method="POST", path=RUNS, name="openwop_seam_start_run", role=Role.WRITER, status=201,
            summary="Run a workflow that tests memory; it is over when this is answered.",
            handler=seams.open_run, body=b.SeamRunBody, answer=s.StartedSeamRun, takes_key=True,
            refusals=(409,),
        ),
        Operation(
            method="GET", path=RUN, name="openwop_seam_get_run", role=Role.READER,
            summary="One run, and what its workflow has found.",
            handler=seams.get_run, answer=s.SeamRunObject, refusals=(404,),
        ),
        replace(log, path=f"{RUN}/events", name="openwop_seam_run_events"),
        Operation(
            method="GET", path=f"{RUN}/events/poll", name="openwop_seam_poll_events",
            role=Role.READER, summary="The same; nothing is waited for.",
            handler=seams.poll_events, answer=RunEvents,
            query=(AFTER, LAST, limit(100, 1000)), refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{RUN}:fork", name="openwop_seam_fork_run", role=Role.WRITER,
            status=201, summary="Copy a run that has ended, or begin where it was.",
            handler=seams.fork_run, body=b.SeamForkBody, answer=s.ForkedSeamRun, takes_key=True,
            refusals=(404, 409, 422),
        ),
    )  # fmt: skip


def _memory(services: OpenWopServices, seams: SeamServices) -> Sequence[Operation]:
    memory = SeamMemory(entries=services.ref_entries, seeding=seams.seeding)
    return (
        Operation(
            method="POST", path="/v1/test/memory/seed", name="openwop_seam_seed",
            role=Role.WRITER, status=201,
            summary="Put entries, which may have ended; a live one with an id of theirs is gone.",
            handler=memory.seed, body=b.SeedsBody, answer=s.SeededEntries, takes_key=True,
            headers=WRITTEN,
        ),
        Operation(
            method="GET", path="/v1/memory/{memoryRef:path}", name="openwop_seam_list_ref",
            role=Role.READER, summary="Live entries of a ref, newest first.",
            handler=memory.list_entries, answer=s.SeamEntries, query=LISTED,
        ),
    )  # fmt: skip


def _passes(services: OpenWopServices, seams: SeamServices) -> Sequence[Operation]:
    passes = SeamPasses(services=services, seeding=seams.seeding)
    return (
        Operation(
            method="POST", path="/v1/test/memory/compact", name="openwop_seam_compact",
            role=Role.WRITER, summary="Compact a ref, and show what its archive says.",
            handler=passes.compact, body=b.SeamRefBody, answer=s.SeamCompacted, takes_key=True,
            headers=WRITTEN, refusals=(409,),
        ),
        Operation(
            method="POST", path="/v1/host/sample/memory/distill", name="openwop_seam_distill",
            role=Role.WRITER, summary="Distill texts, or a ref, which is filled if it is empty.",
            handler=passes.distill, body=b.SeamDistillBody, answer=s.SeamDistilled,
            headers=WRITTEN, refusals=(408, 409, 413, 422, 507),
        ),
        Operation(
            method="POST", path="/v1/host/sample/memory/consolidate",
            name="openwop_seam_consolidate", role=Role.WRITER,
            summary="Consolidate a ref, which is filled if it is empty.",
            handler=passes.consolidate, body=b.SeamConsolidateBody, answer=s.SeamConsolidated,
            refusals=(408, 409, 413, 422, 507),
        ),
    )  # fmt: skip


def _commitment(services: OpenWopServices) -> Operation:
    return Operation(
        method="POST", path="/v1/host/sample/commitment/fire", name="openwop_seam_fire_commitment",
        role=Role.WRITER, summary="Put an entry, arm a commitment of it, and satisfy it twice.",
        handler=SeamCommitments(services=services).fire, body=b.SeamFireBody,
        answer=s.FiredCommitment, refusals=(408, 413, 507),
    )  # fmt: skip


def _aliases(path: str, host: str, api: OpenWop) -> Sequence[Operation]:
    """The adapter's operations as another host has them."""
    entry, name = f"{path}/{{memoryId:path}}", f"openwop_seam_{host}"
    return (
        Operation(
            method="GET", path=path, name=f"{name}_list", role=Role.READER,
            summary="Live entries of a ref, newest first.",
            handler=api.list_entries, answer=m.ListedRefEntries, query=(REF, *LISTED, IN_RUN),
            refusals=(404, 422),
        ),
        Operation(
            method="GET", path=entry, name=f"{name}_get", role=Role.READER,
            summary="One entry.",
            handler=api.get_entry, answer=m.OneRefEntry, query=(REF, IN_RUN), refusals=(404, 422),
        ),
        Operation(
            method="DELETE", path=entry, name=f"{name}_delete", role=Role.WRITER,
            summary="Delete an entry.",
            handler=api.delete_entry, answer=m.DeletedRefEntry, query=(REF, OF_RUN),
            takes_key=True, refusals=(404, 409),
        ),
    )  # fmt: skip


def _seam(operation: Operation) -> Operation:
    """The operation in the seams' span, for callers with a key alone."""
    handler = partial(_keyed, operation.handler)
    return replace(operation, handler=handler, span=SPAN)


async def _keyed(handler: Handler, request: Request) -> Response:
    """Also where the service has been opened again since its start."""
    if admission(request).admitted.key is None:
        raise Unauthenticated(NO_KEY)
    return await handler(request)
