"""Which rules hold for a caller: its tenant's exceptions, and the values that were registered."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..model.access import Caller, TenantId
from ..secrets.redaction import Registry, Rules, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What is taken out of texts, in one service.

    A value registered for a run is a secret in all that its tenant writes: it may
    turn up in another run, and who wrote it there is not to be told that it is one.
    """

    exceptions: Callable[[TenantId], Rules]
    registry: Registry = field(default_factory=Registry)

    def register(self, run: Run, value_id: str, value: str) -> None:
        """Take a value out from now on, in memory alone; Invalid for one that is too short."""
        self.registry.register(run, value_id, value)

    def forget(self, run: Run) -> None:
        """Take out the values of a run no more."""
        self.registry.forget(run)

    def rules(self, caller: Caller) -> Rules:
        """The rules for what a caller writes, and for what is said of its requests."""
        rules = self.exceptions(caller.tenant)
        values = self.registry.all_of(caller.tenant)
        return _with_values(rules, values) if values else rules


@lru_cache(64)
def _with_values(rules: Rules, values: tuple[tuple[str, str], ...]) -> Rules:
    return replace(rules, values=values)
