"""What is served, and the operations of runs and of their events."""

from collections.abc import Sequence

from ...http.protocol import Operation, Parameter
from ...memory.model.access import Role
from . import bodies as b
from . import models as m
from .discovery import BASE, PATH, Discovery
from .handlers import OpenWop
from .parameters import limit

RUNS, RUN = f"{BASE}/runs", f"{BASE}/runs/{{runId}}"


def operations(api: OpenWop, discovery: Discovery) -> Sequence[Operation]:
    """Discovery, and every operation of runs."""
    return (
        Operation(
            method="GET", path=PATH, name="openwop_discover",
            summary="What is served of OpenWOP.",
            handler=discovery.discover, answer=m.HostDiscovery,
            headers={"ETag": "Of the document."},
        ),
        Operation(
            method="POST", path=RUNS, name="openwop_open_run", role=Role.WRITER, status=201,
            status_if_new=200, is_limited=False,
            summary="Open a run, which sees memory as it is now; the same one again is the first.",
            handler=api.open_run, body=b.RunBody, body_required=False, answer=m.OpenedRun,
            takes_key=True, refusals=(409,),
        ),
        Operation(
            method="GET", path=RUN, name="openwop_get_run", role=Role.READER,
            summary="One run.", handler=api.get_run, answer=m.RunObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{RUN}/secrets", name="openwop_register_secret",
            role=Role.WRITER,
            summary="Let a value be a secret in all that is written until the run ends.",
            handler=api.register_secret, body=b.RunSecretBody, answer=m.RegisteredSecret,
            refusals=(404, 408, 409, 413, 507),
        ),
        Operation(
            method="POST", path=f"{RUN}/end", name="openwop_end_run", role=Role.WRITER,
            is_limited=False, summary="End a run.",
            handler=api.end_run, body=b.RunEndBody, answer=m.RunObject, takes_key=True,
            refusals=(404, 409),
        ),
        Operation(
            method="GET", path=f"{RUN}/events", name="openwop_run_events", role=Role.READER,
            summary="What happened in a run, in order.",
            handler=api.list_run_events, answer=m.RunEvents,
            query=(Parameter(name="after", kind="integer", help="After this sequence."),
                   limit(100, 1000)),
            refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{RUN}/fork", name="openwop_fork_run", role=Role.WRITER,
            status=201, summary="Copy a run that has ended, or begin where it was.",
            handler=api.fork_run, body=b.RunForkBody, answer=m.ForkedRun, takes_key=True,
            refusals=(404, 409, 422),
        ),
        Operation(
            method="GET", path=f"{BASE}/events", name="openwop_events", role=Role.READER,
            summary="What happened in all runs, in the order of commits.",
            handler=api.list_events, answer=m.AllRunEvents,
            query=(
                Parameter(name="after", kind="integer", help="The `next` of the answer before."),
                limit(100, 1000),
                Parameter(name="type", help="Of this type alone."),
            ),
        ),
    )  # fmt: skip
