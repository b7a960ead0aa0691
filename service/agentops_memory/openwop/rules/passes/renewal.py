"""Entries whose secrets go with a pass: put anew without them, and erased."""

from collections.abc import Sequence

from ....engine.engine import Transaction
from ....memory.model.erasure import Erasure, ErasureId
from ....memory.model.kinds import ErasureKind
from ....memory.model.memory import MemoryId
from ....memory.model.space import NO_PROJECT, MemoryRef
from ....memory.sql.memories import MemoryTable
from ....memory.sql.receipts import ReceiptTable
from ...entries import Origin, RefDraft, RefEntry, RefTable, added
from ...refs import stable_id
from ...sql.passes import PassTable


def renewed(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> MemoryId:
    """Put an entry anew, in its place, without the secrets that it held."""
    (held,) = tx[MemoryTable].loaded([entry.memory])
    known = tx[RefTable].provenance(ref, entry.id)
    name = None if stable_id(entry.id) else entry.id
    draft = RefDraft(
        ref=ref,
        content=entry.content,
        tags=entry.tags,
        id=name,
        origin=known.origin if known else Origin(),
    )
    new = added(tx, draft, ends=entry.expires_at, like=held)
    tx[PassTable].take_over(entry.memory, new.memory)
    return new.memory


def erase(tx: Transaction, memories: Sequence[MemoryId]) -> None:
    """Erase entries that hold secrets, with a receipt."""
    revisions = tx[MemoryTable].erase_some(memories)
    tx[ReceiptTable].add(
        Erasure(
            id=ErasureId(tx.new_uid(tx.now)),
            kind=ErasureKind.REF,
            project=NO_PROJECT,
            memories=tuple(memories),
            observations=len(memories),
            revisions=revisions,
            erased_at=tx.now,
        )
    )
