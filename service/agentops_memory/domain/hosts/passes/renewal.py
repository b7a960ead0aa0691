"""Entries whose secrets go with a pass: put anew without them, and erased."""

from collections.abc import Sequence

from ....storage.sql.hosts.entries import RefTable
from ....storage.sql.hosts.passes import PassTable
from ....storage.sql.memories import MemoryTable
from ....storage.sql.receipts import ReceiptTable
from ...model.erasure import Erasure, ErasureId
from ...model.hosts.entries import Origin, RefDraft, RefEntry, stable_id
from ...model.kinds import ErasureKind
from ...model.memory import MemoryId
from ...model.space import NO_PROJECT, MemoryRef
from ...ports.engine import Transaction
from ..changes import added


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
