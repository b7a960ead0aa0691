"""Scans for secrets in what is already stored, and their redaction."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from ...agentops.transfers.transfer import Transfer
from ...engine.callbacks import noop
from ...engine.engine import Engine, Transaction
from ...openintent.rules.changes import redact_entry
from ...openintent.sql.entries import AgentTable
from ...openwop.entries import RefTable, measure
from ...openwop.model.proposals import ProposalId
from ...openwop.rules.commitment_changes import screen_tags
from ...openwop.rules.proposals.artifacts import artifact_of
from ...openwop.rules.proposals.rules import known_proposal, redacted
from ...openwop.rules.screen import Screen, screened
from ...openwop.sql.proposals import ProposalTable
from ...recall.text.normalization import content_hash, sha256_of
from ...secrets.redaction import Rules
from ...stores.rules.rules import size_of
from ..lifecycles import at_key
from ..model.access import Caller, Role
from ..model.erasure import Erasure, ErasureId
from ..model.kinds import ErasureKind
from ..model.memory import UNSAVED, Memory, MemoryId, SessionId, Text
from ..model.space import Project, StoreId
from ..model.stores import EntryId
from ..redactor import Redactor, RulesOf
from ..sql.memories import MemoryTable
from ..sql.receipts import ReceiptTable
from ..sql.revisions import RevisionTable, VersionTable
from ..sql.sessions import SessionTable, TranscriptTable
from ..sql.stores import StoreTable
from ..writes import known
from .scan_findings import (
    ScanPage,
    SecretFinding,
    memory_page,
    proposal_page,
    redacted_content,
    redacted_pairs,
    redacted_store,
    session_page,
    size,
    store_page,
    version_page,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Scans of one service: memories, live and deleted, their revisions, sessions, stores, and
    proposals.

    Both need the role admin.
    """

    engine: Engine
    rules: RulesOf
    on_erased: Callable[[Caller], None] = noop

    async def size(self, caller: Caller) -> int:
        """How many rows a scan reads."""
        return await self.engine.read(caller, size)

    async def look(self, caller: Caller) -> AsyncIterator[ScanPage]:
        """The findings, page by page; nothing is changed."""
        caller.require(Role.ADMIN)
        rules = self.rules(caller)
        for page, first in PAGES:
            after = first
            while found := await self.engine.read(caller, page, after, rules):
                after, scanned = found
                yield scanned

    async def redact(self, caller: Caller) -> AsyncIterator[ScanPage]:
        """Redact what is found, with an erasure receipt for each page and project."""
        await Transfer(engine=self.engine).resume(caller)  # a scan does not see staged rows
        rules = self.rules(caller)
        async for scanned in self.look(caller):
            if found := [finding for finding in scanned.findings if finding.kinds]:
                await self.engine.write(caller, redact, found, rules)
                self.on_erased(caller)
            yield scanned


PageOf = Callable[[Transaction, Any, Rules], tuple[Any, ScanPage] | None]

PAGES: Sequence[tuple[PageOf, Any]] = (
    (memory_page, UNSAVED),
    (session_page, 0),
    (store_page, None),
    (version_page, (UNSAVED, 0)),
    (proposal_page, 0),
)
"""What reads the next page of each kind of row, and after what the first one begins."""


def redact(tx: Transaction, findings: Sequence[SecretFinding], rules: Rules) -> None:
    """Redact the rows in which secrets were found, and add the receipts."""
    current = [it for finding in findings if (it := _current(tx, finding))]
    in_order = sorted(current, key=lambda finding: finding.project)
    for project, found in groupby(in_order, key=lambda finding: finding.project):
        _redact_project(tx, project, list(found), rules)


def _current(tx: Transaction, finding: SecretFinding) -> SecretFinding | None:
    """The finding with its project's current name; None if its row was erased meanwhile."""
    if finding.proposal is not None:
        return finding if tx[ProposalTable].get(finding.proposal) else None
    if finding.store is not None:
        return finding if _is_stored(tx, finding.store, finding.entry) else None
    if finding.memory is not None:
        memory = tx[MemoryTable].get(finding.memory)
        if memory is None:
            is_known = tx[AgentTable].one(finding.memory) or tx[RefTable].some([finding.memory])
            return finding if is_known else None
        return replace(finding, project=memory.space.project)
    session = finding.session and tx[SessionTable].get(finding.session)
    return replace(finding, project=session.project) if session else None


def _redact_project(
    tx: Transaction, project: Project, findings: Sequence[SecretFinding], rules: Rules
) -> None:
    memories = [finding.memory for finding in findings if finding.memory is not None]
    revisions = sum(_redact_one(tx, finding, rules) for finding in findings)
    sessions = sum(
        _redact_session(tx, finding.session, rules) for finding in findings if finding.session
    )
    tx[ReceiptTable].add(
        Erasure(
            id=ErasureId(tx.new_uid(tx.now)),
            kind=ErasureKind.REDACTION,
            project=project,
            memories=tuple(memories),
            observations=len(memories),
            revisions=revisions,
            sessions=sessions,
            erased_at=tx.now,
        )
    )


def _redact_one(tx: Transaction, finding: SecretFinding, rules: Rules) -> int:
    """Redact anything but a session; the number of revisions that were redacted."""
    if finding.proposal is not None:
        _redact_proposal(tx, finding.proposal, rules)
        return 0
    if finding.store is None:
        return 0 if finding.memory is None else _redact_memory(tx, finding.memory, rules)
    if finding.entry is None:
        _redact_store(tx, finding.store, rules)
    elif finding.numbers:
        return _redact_versions(tx, finding.store, finding.entry, finding.numbers, rules)
    else:
        _redact_entry(tx, finding.store, finding.entry, rules)
    return 0


def _redact_memory(tx: Transaction, id_: MemoryId, rules: Rules) -> int:
    """Redact a memory and its revisions; the number of revisions that had secrets."""
    entry = tx[AgentTable].one(id_)
    if entry is not None:
        redact_entry(tx, entry, Redactor(rules))
        tx[MemoryTable].must_scrub(id_)
        return 0
    if tx[RefTable].some([id_]):
        _redact_ref_entry(tx, id_, Redactor(rules))
        return 0
    memory, changed = known(tx, id_), 0
    for revision in tx[RevisionTable].newest(memory)[1:]:
        if revision.text is not None:
            redactor = Redactor(rules)
            text = redactor.words(revision.text)
            tx[RevisionTable].rewrite(id_, revision.number, text)
            changed += bool(redactor.count)
    clean = _without_taken_key(tx, memory, Redactor(rules).memory(memory))
    tx[MemoryTable].replace(replace(clean, content_hash=content_hash(clean.text.content)))
    tx[MemoryTable].must_scrub(id_)
    return changed


def _redact_ref_entry(tx: Transaction, id_: MemoryId, redactor: Redactor) -> None:
    (memory,) = tx[MemoryTable].loaded([id_])
    text = screened(redactor, memory.text)
    clean = replace(memory, text=text, content_hash=content_hash(text.content))
    tx[MemoryTable].replace(clean)
    measure(tx, clean)
    screen_tags(tx, id_, Screen(redactor))
    tx[MemoryTable].must_scrub(id_)


def _redact_proposal(tx: Transaction, id_: ProposalId, rules: Rules) -> None:
    """Redact a proposal; what is applied of it is named by its new bytes from then on."""
    proposal = known_proposal(tx, id_)
    clean = redacted(Screen(Redactor(rules)), proposal)
    tx[ProposalTable].redact(clean, artifact_of(clean.artifact) if proposal.is_intact else None)


def _without_taken_key(tx: Transaction, memory: Memory, clean: Memory) -> Memory:
    """The clean memory, without its key if another has it: keys may differ in secrets alone."""
    if clean.key is None or clean.key == memory.key or memory.lifecycle.is_expired(tx.now):
        return clean
    held = at_key(tx, clean.space, clean.key)
    return clean if held is None or held.id == memory.id else replace(clean, key=None)


def _redact_session(tx: Transaction, id_: SessionId, rules: Rules) -> int:
    session = tx[SessionTable].get(id_)
    assert session is not None  # this transaction has just seen it
    redactor = Redactor(rules)
    tx[SessionTable].close(redactor.summary(session))
    if transcript := tx[TranscriptTable].get(id_):
        tx[TranscriptTable].rewrite(id_, redactor.transcript(transcript))
    return min(redactor.count, 1)


def _is_stored(tx: Transaction, store: StoreId, entry: EntryId | None) -> bool:
    if tx[StoreTable].get(store) is None:
        return False
    return entry is None or tx[MemoryTable].in_store(store, entry) is not None


def _redact_store(tx: Transaction, id_: StoreId, rules: Rules) -> None:
    store = tx[StoreTable].get(id_)
    assert store is not None  # this transaction has just seen it
    tx[StoreTable].replace(redacted_store(Redactor(rules), store))


def _redact_entry(tx: Transaction, store: StoreId, entry: EntryId, rules: Rules) -> None:
    """Redact an entry's current version; its size and hash follow."""
    memory = _memory(tx, store, entry)
    redactor = Redactor(rules)
    text = redacted_content(redactor, memory.text)
    if text != memory.text:
        _measure(tx, memory, memory.revision, text)
        tx[StoreTable].grow(store, 0, size_of(text.content) - size_of(memory.text.content))
    tx[MemoryTable].replace(
        replace(
            memory,
            text=text,
            extras=redacted_pairs(redactor, memory.extras),
            content_hash=content_hash(text.content),
        )
    )
    tx[MemoryTable].must_scrub(memory.id)


def _redact_versions(
    tx: Transaction, store: StoreId, entry: EntryId, numbers: Collection[int], rules: Rules
) -> int:
    """Redact earlier versions of an entry; how many had secrets."""
    memory, changed = _memory(tx, store, entry), 0
    for past in tx[VersionTable].past((memory.id, min(numbers) - 1), max(numbers)):
        if past.memory != memory.id or past.number > max(numbers):
            break
        clean = redacted_content(Redactor(rules), past.text)
        if clean != past.text:
            tx[RevisionTable].rewrite(memory.id, past.number, clean)
            _measure(tx, memory, past.number, clean)
            changed += 1
    tx[MemoryTable].must_scrub(memory.id)
    return changed


def _memory(tx: Transaction, store: StoreId, entry: EntryId) -> Memory:
    memory = tx[MemoryTable].in_store(store, entry)
    assert memory is not None  # this transaction has just seen it
    return memory


def _measure(tx: Transaction, memory: Memory, number: int, text: Text) -> None:
    tx[VersionTable].measure(memory.id, number, size_of(text.content), sha256_of(text.content))
