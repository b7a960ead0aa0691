"""In the background, imports are completed that were accepted and left half-way."""

import logging
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from ..domain.model.access import Caller
from ..domain.transfer.transfer import Transfer
from .runner import Callers, WorkSignal, attempted, background, on_signal

log = logging.getLogger(__name__)


def importing(
    transfer: Transfer, callers: Callers, left: WorkSignal, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, they are: at the start, when the signal is set, now and again.

    Another process may have left one, so all tenants are looked at, as often as that; an
    interval of 0 means only at the start.
    """

    async def is_completed(caller: Caller) -> bool:
        failure = "an import goes on later"
        return await attempted(transfer.resume(caller), log, failure, tenant=caller.tenant)

    return background(on_signal(is_completed, callers, left, every))
