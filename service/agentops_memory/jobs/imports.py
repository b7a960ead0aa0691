"""In the background, imports are completed that were accepted and left half-way."""

import logging
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from ..domain.transfer.transfer import Transfer
from .runner import Callers, Job, WorkSignal, background

log = logging.getLogger(__name__)


def importing(
    transfer: Transfer, callers: Callers, left: WorkSignal, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, they are: at the start, when the signal is set, now and again.

    Another process may have left one, so all tenants are looked at, as often as that; an
    interval of 0 means only at the start.
    """
    job = Job(transfer.resume, log, "an import goes on later")
    return background(job.run_on_signal(callers, left, every))
