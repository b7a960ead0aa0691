"""Which rules hold for a caller: its tenant's exceptions, and the values that were registered."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from threading import Lock

from ..errors import Invalid, OverQuota
from ..model.access import Caller, TenantId
from ..secrets.redaction import Rules, require_registrable

LONGEST_ID = 256  # characters of a registered value's id
MOST_VALUES = 256  # of a run
MOST_RUNS = 1000  # of a tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an agent, by its tenant's name for it."""

    tenant: str
    run: str


class Registry:
    """The values registered for runs, in memory only. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tenants: dict[str, dict[Run, dict[tuple[str, str], None]]] = {}
        self._all: dict[str, tuple[tuple[str, str], ...]] = {}

    def register(self, run: Run, value_id: str, value: str) -> None:
        """Register a value for redaction from now on; idempotent.

        Invalid for a value that is too short, too long or contains a placeholder; OverQuota
        when the run has too many values or the tenant too many runs.
        """
        require_registrable(value)
        if len(value_id) > LONGEST_ID:
            raise Invalid(f"The id of a registered value has at most {LONGEST_ID} characters.")
        with self._lock:
            runs = self._tenants.setdefault(run.tenant, {})
            if run not in runs and len(runs) >= MOST_RUNS:
                raise OverQuota(f"At most {MOST_RUNS} runs register values at a time.")
            values = runs.setdefault(run, {})
            if (value_id, value) not in values and len(values) >= MOST_VALUES:
                raise OverQuota(f"A run registers at most {MOST_VALUES} values.")
            values[value_id, value] = None
            self._all.pop(run.tenant, None)

    def forget(self, run: Run) -> None:
        """Drop the values of a run, if it has any."""
        with self._lock:
            runs = self._tenants.get(run.tenant, {})
            runs.pop(run, None)
            if not runs:
                self._tenants.pop(run.tenant, None)
            self._all.pop(run.tenant, None)

    def values(self, run: Run) -> tuple[tuple[str, str], ...]:
        """The (id, value) pairs of a run, in order of registration."""
        with self._lock:
            return tuple(self._tenants.get(run.tenant, {}).get(run, ()))

    def all_of(self, tenant: str) -> tuple[tuple[str, str], ...]:
        """The distinct (id, value) pairs of a tenant's runs; the same tuple until one changes."""
        with self._lock:
            if tenant not in self._tenants:
                return ()
            if tenant not in self._all:
                runs = self._tenants[tenant].values()
                self._all[tenant] = tuple(dict.fromkeys(chain.from_iterable(runs)))
            return self._all[tenant]


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
