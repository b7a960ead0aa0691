"""What no run of a host has caused: it is told of in a run of its own (OpenWOP, kind `pass`)."""

from collections.abc import Sequence

from ..model.hosts.runs import JsonObject, Run, RunDraft, RunEventType, RunKind, RunStatus
from ..ports.engine import Transaction

Told = tuple[RunEventType, JsonObject]


def recorded(tx: Transaction, *told: Told, refs: Sequence[str] = ()) -> Run:
    """A run that begins, tells of what was done, and has ended, in this transaction."""
    run = tx.runs.open(RunDraft(refs=tuple(refs)), kind=RunKind.PASS)
    for type_, payload in told:
        tx.runs.tell(run, type_, payload)
    return tx.runs.end(run, RunStatus.COMPLETED)
