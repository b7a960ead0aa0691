"""The operations of passes and of forgetting."""

from collections.abc import Sequence

from ...http.bodies import WRITTEN
from ...http.protocol import Operation, Parameter
from ...memory.model.access import Role
from ...memory.redactor import Redaction
from ..api import BASE
from ..rules.forgetting import Forgetting
from ..rules.passes.passes import Passes
from . import bodies as b
from . import models as m
from .handlers import PassHandlers


def operations(passes: Passes, forgetting: Forgetting, redaction: Redaction) -> Sequence[Operation]:
    """Every operation of passes, and of what is forgotten."""
    api = PassHandlers(passes=passes, forgetting=forgetting, redaction=redaction)
    return (
        Operation(
            method="POST", path=f"{BASE}/compact", name="openwop_compact", role=Role.WRITER,
            summary="Put an archive in the place of the oldest entries of a ref.",
            handler=api.compact, body=b.CompactBody, answer=m.PassObject, takes_key=True,
            headers=WRITTEN, refusals=(409,),
        ),
        Operation(
            method="POST", path=f"{BASE}/distill", name="openwop_distill", role=Role.WRITER,
            summary="Put an archive of the entries of a ref within a budget; these stay.",
            handler=api.distill, body=b.DistillBody, answer=m.DistilledObject, takes_key=True,
            headers=WRITTEN, refusals=(409, 422),
        ),
        Operation(
            method="POST", path=f"{BASE}/consolidate", name="openwop_consolidate",
            role=Role.WRITER,
            summary="Let entries of a ref stand for what they say, too; no word is lost.",
            handler=api.consolidate, body=b.ConsolidateBody, answer=m.PassObject, takes_key=True,
            headers=WRITTEN, refusals=(409, 422),
        ),
        Operation(
            method="POST", path=f"{BASE}/passes/{{runId}}/undo", name="openwop_undo",
            role=Role.WRITER, summary="Take back what a pass has done, wholly or not at all.",
            handler=api.undo, answer=m.UndonePass, takes_key=True, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=f"{BASE}/index", name="openwop_index", role=Role.READER,
            summary="The live archives of a ref, newest first, without their content.",
            handler=api.index, answer=m.MemoryIndex,
            query=(Parameter(name="memoryRef", help="The ref.", required=True),),
        ),
        Operation(
            method="POST", path=f"{BASE}/forget", name="openwop_forget", role=Role.ADMIN,
            summary="Erase whatever is about a subject, with what was made of it.",
            handler=api.forget, body=b.ForgetBody, answer=m.ForgottenSubject, takes_key=True,
        ),
        Operation(
            method="GET", path=f"{BASE}/erasures/{{erasureId}}", name="openwop_get_erasure",
            role=Role.READER, summary="The receipt of an erasure, and whether its bytes are gone.",
            handler=api.get_erasure, answer=m.RefErasureReceipt, refusals=(404,),
        ),
    )  # fmt: skip
