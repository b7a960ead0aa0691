"""Looking for secrets in what is already stored, and taking them out."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ..memories.redactor import Redactor, RulesOf
from ..memories.writes import known
from ..model.access import Caller, Role
from ..model.erasure import Erasure, ErasureId, ErasureKind
from ..model.memory import UNSAVED, Memory, MemoryId, SessionId, Text
from ..model.space import Project, StoreId
from ..model.stores import EntryId, Page, StoresSeen
from ..ports.audit import noop
from ..ports.engine import Engine, Transaction
from ..secrets.redaction import Rules
from ..text.normalization import content_hash
from ..transfer.transfer import Transfer
from .scan_findings import Finding, Scanned, in_memory, in_past, in_session, in_store, some
from .scan_stores import redact_entry, redact_past, screened_store

PAGE = 200  # memories, sessions or stores that are looked at together
MOST_STORES = 100_000  # that are counted
EVERY_STORE = StoresSeen(with_archived=True)
MOST_LOOKED_AT = 2 * 1024 * 1024  # characters after which a page ends; a read has a time limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Scans of one service: memories, live and deleted, their revisions, sessions, and stores."""

    engine: Engine
    rules: RulesOf
    on_erased: Callable[[Caller], None] = noop

    async def size(self, caller: Caller) -> int:
        """How many rows a scan looks at."""
        return await self.engine.read(caller, size)

    async def look(self, caller: Caller) -> AsyncIterator[Scanned]:
        """What would be taken out; nothing is changed."""
        async for scanned in self._pages(caller):
            yield scanned

    async def redact(self, caller: Caller) -> AsyncIterator[Scanned]:
        """Take it out, page by page. Each page that had any leaves a receipt for each project."""
        await Transfer(engine=self.engine).resume(caller)  # what it stores later is not looked at
        rules = self.rules(caller)
        async for scanned in self._pages(caller):
            if found := [finding for finding in scanned.findings if finding.kinds]:
                await self.engine.write(caller, redact, found, rules)
                self.on_erased(caller)
            yield scanned

    async def _pages(self, caller: Caller) -> AsyncIterator[Scanned]:
        caller.require(Role.ADMIN)
        rules, after = self.rules(caller), UNSAVED
        while memories := await self.engine.read(caller, memory_page, after, rules):
            after, scanned = memories
            yield scanned
        last = 0
        while sessions := await self.engine.read(caller, session_page, last, rules):
            last, closed = sessions
            yield closed
        lowest: str | None = None
        while stores := await self.engine.read(caller, store_page, lowest, rules):
            lowest, described = stores
            yield described
        past = (UNSAVED, 0)
        while versions := await self.engine.read(caller, version_page, past, rules):
            past, told = versions
            yield told


def size(tx: Transaction) -> int:
    stores = tx.stores.page(EVERY_STORE, Page(limit=MOST_STORES)).items
    return tx.memories.total() + tx.sessions.count(None) + len(stores)


def memory_page(tx: Transaction, after: MemoryId, rules: Rules) -> tuple[MemoryId, Scanned] | None:
    room, rows, findings = MOST_LOOKED_AT, 0, []
    for memory in tx.memories.every(after, PAGE):
        revisions = _past_of(tx, memory)
        findings.append(in_memory(memory, revisions, rules))
        rows, after = rows + 1, memory.id
        room -= sum(len(text.content) for text in (memory.text, *revisions))
        if room < 0:
            break
    return (after, Scanned(rows=rows, findings=some(findings))) if rows else None


def session_page(tx: Transaction, after: int, rules: Rules) -> tuple[int, Scanned] | None:
    page = tx.sessions.page(None, after, PAGE)
    if not page:
        return None
    sessions = [session for _, session in page]
    findings = (in_session(session, tx.transcripts.get(session.id), rules) for session in sessions)
    return page[-1][0], Scanned(rows=len(sessions), findings=some(findings))


def store_page(tx: Transaction, after: str | None, rules: Rules) -> tuple[str, Scanned] | None:
    page = tx.stores.page(EVERY_STORE, Page(limit=PAGE, after=after)).items
    # An id that is no UTF-8 is shown as another, after which it may come again.
    stores = [store for store in page if after is None or store.id < after]
    if not stores:
        return None
    findings = (in_store(store, rules) for store in stores)
    return stores[-1].id, Scanned(rows=len(stores), findings=some(findings))


def version_page(
    tx: Transaction, after: tuple[MemoryId, int], rules: Rules
) -> tuple[tuple[MemoryId, int], Scanned] | None:
    past = tx.versions.past(after, PAGE)
    if not past:
        return None
    findings = [
        in_past(list(versions), rules) for _, versions in groupby(past, key=lambda it: it.memory)
    ]
    return (past[-1].memory, past[-1].number), Scanned(rows=0, findings=some(findings))


def redact(tx: Transaction, findings: Sequence[Finding], rules: Rules) -> None:
    """Take out what was found, or has come since, and leave the receipts."""
    current = [there for finding in findings if (there := _as_it_is(tx, finding))]
    in_order = sorted(current, key=lambda finding: finding.project)
    for project, found in groupby(in_order, key=lambda finding: finding.project):
        _redact_project(tx, project, list(found), rules)


def _as_it_is(tx: Transaction, finding: Finding) -> Finding | None:
    """The finding with its project's name of now; None if it was erased meanwhile."""
    if finding.store is not None:
        return finding if _is_stored(tx, finding.store, finding.entry) else None
    if finding.memory is not None:
        memory = tx.memories.get(finding.memory)
        return replace(finding, project=memory.space.project) if memory else None
    session = finding.session and tx.sessions.get(finding.session)
    return replace(finding, project=session.project) if session else None


def _redact_project(
    tx: Transaction, project: Project, findings: Sequence[Finding], rules: Rules
) -> None:
    memories = [finding.memory for finding in findings if finding.memory is not None]
    revisions = sum(_redact_one(tx, finding, rules) for finding in findings)
    sessions = sum(
        _redact_session(tx, finding.session, rules) for finding in findings if finding.session
    )
    tx.receipts.add(
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


def _redact_one(tx: Transaction, finding: Finding, rules: Rules) -> int:
    """Take the secrets out of what was found but sessions; how many revisions had any."""
    if finding.store is None:
        return 0 if finding.memory is None else _redact_memory(tx, finding.memory, rules)
    if finding.entry is None:
        _redact_store(tx, finding.store, rules)
    elif finding.numbers:
        return redact_past(tx, finding.store, finding.entry, finding.numbers, rules)
    else:
        redact_entry(tx, finding.store, finding.entry, rules)
    return 0


def _redact_memory(tx: Transaction, id_: MemoryId, rules: Rules) -> int:
    """Take the secrets out of a memory and its revisions; how many of those had any."""
    memory, changed = known(tx, id_), 0
    for revision in tx.revisions.newest(memory)[1:]:
        if revision.text is not None:
            redactor = Redactor(rules)
            text = redactor.words(revision.text)
            tx.revisions.rewrite(id_, revision.number, text)
            changed += bool(redactor.count)
    clean = _without_taken_key(tx, memory, Redactor(rules).memory(memory))
    tx.memories.replace(replace(clean, content_hash=content_hash(clean.text.content)))
    tx.memories.must_scrub(id_)
    return changed


def _without_taken_key(tx: Transaction, memory: Memory, clean: Memory) -> Memory:
    """Two keys may differ in their secrets alone: the second memory has none then."""
    if clean.key is None or clean.key == memory.key:
        return clean
    held = tx.memories.at_key(clean.space, clean.key)
    return clean if held is None or held.id == memory.id else replace(clean, key=None)


def _redact_session(tx: Transaction, id_: SessionId, rules: Rules) -> int:
    session = tx.sessions.get(id_)
    assert session is not None  # this transaction has just seen it
    redactor = Redactor(rules)
    tx.sessions.close(redactor.summary(session))
    if told := tx.transcripts.get(id_):
        tx.transcripts.rewrite(id_, redactor.transcript(told))
    return min(redactor.count, 1)


def _is_stored(tx: Transaction, store: StoreId, entry: EntryId | None) -> bool:
    if tx.stores.get(store) is None:
        return False
    return entry is None or tx.memories.in_store(store, entry) is not None


def _redact_store(tx: Transaction, id_: StoreId, rules: Rules) -> None:
    store = tx.stores.get(id_)
    assert store is not None  # this transaction has just seen it
    _, clean = screened_store(store, rules)
    tx.stores.replace(clean)


def _past_of(tx: Transaction, memory: Memory) -> list[Text]:
    """What a project's memory said before; entries may have said so much that it is read apart."""
    if memory.space.is_store:
        return []
    return [it.text for it in tx.revisions.newest(memory)[1:] if it.text is not None]
