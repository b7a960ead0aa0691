"""In the background, the bytes follow what was erased."""

import logging
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial

from ..domain.lifecycle.receipts import Erasures
from ..domain.model.access import Caller
from .runner import Callers, Job, WorkSignal, background

log = logging.getLogger(__name__)


def scrubbing(
    erasures: Erasures, callers: Callers, erased: WorkSignal, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, what is erased leaves the files: at the start, when the signal is set, now and again.

    Another process may have erased something, so all tenants are looked at, as
    often as that; an interval of 0 means only at the start.
    """

    job = Job(partial(_is_scrubbed, erasures), log, "no scrub now; it is tried again")
    return background(job.run_on_signal(callers, erased, every))


async def _is_scrubbed(erasures: Erasures, caller: Caller) -> bool:
    """Whether nothing of the tenant is held back."""
    scrubbed = await erasures.scrub(caller)
    if scrubbed.settled:
        extra = {"erasures": scrubbed.settled, "tenant": caller.tenant}
        log.info("erased bytes are gone", extra=extra)
    return not scrubbed.pending
