"""What holds for every run, and what is refused."""

from collections.abc import Mapping

from ...engine.engine import Transaction
from ...errors import Conflict, NotFound, Refusal
from ..model.runs import Run, RunId
from ..sql.runs import RunTable

NO_RUN = "run not found"
EXPIRED, DAMAGED = "retention_expired", "event_log_unavailable"  # why a snapshot is lost


class RunConflict(Conflict):
    """The run is there already, and is another one, or goes on."""

    code = "run_conflict"


class RunEnded(Conflict):
    """The run has ended, and takes no write."""

    code = "run_terminal"

    def __init__(self) -> None:
        super().__init__("The run has ended.")


class SecretsLost(Conflict):
    """Values of the run are not known in this process: what is put now could hold them."""

    code = "run_secrets_lost"

    def __init__(self) -> None:
        super().__init__("The values that the run has registered are lost: register them again.")


class InvalidSequence(Refusal):
    """The run has no such event, nor is it the next."""

    code = "invalid_from_seq"

    def __init__(self) -> None:
        super().__init__("fromSeq lies beyond the next event of the run.")


class SnapshotLost(Refusal):
    """Something that the run has seen is gone; today's memory never stands in."""

    code = "replay_memory_snapshot_unavailable"

    def __init__(self, source: RunId, from_sequence: int, reason: str) -> None:
        super().__init__("Memory as the run has seen it is not there any more.")
        self.source = source
        self.from_sequence = from_sequence
        self.reason = reason


def known_run(tx: Transaction, run: RunId) -> Run:
    """The run, or NotFound."""
    found = tx[RunTable].get(run)
    if found is None:
        raise NotFound(NO_RUN)
    return found


def open_run(tx: Transaction, run: RunId) -> Run:
    """The run, or NotFound; RunEnded if it has ended."""
    found = known_run(tx, run)
    if not found.is_open:
        raise RunEnded
    return found


def require_secrets(run: Run, held: Mapping[str, int]) -> None:
    """Refuse with SecretsLost if an id has fewer values here than the run has registered."""
    if any(held.get(id_, 0) < count for id_, count in run.secrets.items()):
        raise SecretsLost
