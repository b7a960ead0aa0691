"""In the background, imports are completed that were accepted and left half-way."""

import logging
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial

from ..domain.errors import NotFound
from ..domain.model.access import Caller
from ..domain.secrets.sanitizing import is_operational
from ..domain.transfer.transfer import Transfer
from .runner import beside, log_failure
from .scrub import Callers, WorkSignal, again_and_again

log = logging.getLogger(__name__)


def importing(
    transfer: Transfer, callers: Callers, work_signal: WorkSignal, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, they are: at the start, when the bell rings, now and again.

    Another process may have left one, so all tenants are looked at, as often as that; an
    interval of 0 means only at the start.
    """
    return beside(again_and_again(partial(_is_completed, transfer), callers, work_signal, every))


async def _is_completed(transfer: Transfer, caller: Caller) -> bool:
    """Whether nothing is left of any import of the tenant; what fails is tried again."""
    try:
        return await transfer.resume(caller)
    except NotFound:
        return True  # the tenant was erased
    except Exception as error:  # noqa: BLE001 - other tenants' go on
        log_failure(log, "an import goes on later", error, tenant=caller.tenant)
        return not is_operational(error)  # a fault of the program stays one until the next look
