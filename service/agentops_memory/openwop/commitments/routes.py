"""The routes of commitments."""

from collections.abc import Sequence

from ...http.bodies import WRITTEN
from ...http.protocol import Operation, Parameter
from ...memory.model.access import Role
from ..memory.discovery import BASE
from ..memory.parameters import limit
from ..model.commitments import CommitmentState
from ..rules.commitments import Commitments
from . import models as m
from .bodies import CommitmentBody
from .handlers import CommitmentHandlers

COMMITMENTS, COMMITMENT = f"{BASE}/commitments", f"{BASE}/commitments/{{commitmentId}}"


def operations(commitments: Commitments) -> Sequence[Operation]:
    """Those that arm, list and cancel."""
    api = CommitmentHandlers(commitments=commitments)
    return (
        Operation(
            method="POST", path=COMMITMENTS, name="openwop_create_commitment", role=Role.WRITER,
            status=201, status_if_new=200,
            summary="Arm a condition for an entry; an equal one that is armed is answered again.",
            handler=api.create_commitment, body=CommitmentBody, answer=m.CommitmentObject,
            takes_key=True, headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="GET", path=COMMITMENTS, name="openwop_list_commitments", role=Role.READER,
            summary="Commitments in the order of their ids.",
            handler=api.list_commitments, answer=m.ListedCommitments,
            query=(
                Parameter(name="memoryRef", help="Of the entries of this ref alone."),
                Parameter(
                    name="state", help="Of this state alone.",
                    choices=[it.value for it in CommitmentState],
                ),
                limit(100, 1000),
                Parameter(name="after", help="An id: those after it."),
            ),
        ),
        Operation(
            method="GET", path=COMMITMENT, name="openwop_get_commitment", role=Role.READER,
            summary="One commitment.",
            handler=api.get_commitment, answer=m.CommitmentObject, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=COMMITMENT, name="openwop_cancel_commitment", role=Role.WRITER,
            summary="Cancel a commitment; one that has fired stays so.",
            handler=api.cancel_commitment, answer=m.CommitmentObject, takes_key=True,
            refusals=(404,),
        ),
    )  # fmt: skip
