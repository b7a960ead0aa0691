"""Callbacks: the audit log, and progress."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from ..memory.model.access import Caller
from ..memory.model.retention import Held

Progress = Callable[[str], None]
"""Called with the name of each step before it is taken."""


Audit = Callable[..., None]
"""Called with caller, action and fields before the action is done; Unavailable if that fails."""


async def audited(audit: Audit, caller: Caller, action: str, **fields: object) -> None:
    """Audit what is about to be done in a caller's tenant, which is not done if that fails."""
    await asyncio.to_thread(audit, caller, action, tenant=caller.tenant, **fields)


class AuditLog(Protocol):
    """The audit log, as those see it who look after it. Unavailable if it cannot be used."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Record an action before it is done."""

    def trim(self, until: datetime) -> int:
        """Remove what is as old as that, or older, and has no newer before it; how much."""

    def measured(self, until: datetime | None) -> Held:
        """How much there is, and how much of it `trim` would remove."""


def noop(*_: object) -> None:
    """A callback that ignores its arguments."""
