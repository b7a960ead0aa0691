"""Scans for secrets in what is already stored, and their redaction."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ..agentops.transfers.transfer import Transfer
from ..engine.callbacks import noop
from ..engine.engine import Engine, Transaction
from ..memory.lifecycles import at_key
from ..memory.model.access import Caller, Role
from ..memory.model.erasure import Erasure, ErasureId
from ..memory.model.kinds import ErasureKind
from ..memory.model.memory import UNSAVED, Memory, MemoryId, Session, SessionId, Text
from ..memory.model.space import NO_PROJECT, UNKNOWN_PROJECT, Project, Space, StoreId
from ..memory.model.stores import EntryId, Metadata, Page, Past, Store, StoreFilter
from ..memory.redactor import MAX_SCOPE, Redactor, RulesOf
from ..memory.sql.idempotency_records import IdempotencyTable
from ..memory.sql.memories import MemoryTable
from ..memory.sql.receipts import ReceiptTable
from ..memory.sql.revisions import RevisionTable, VersionTable
from ..memory.sql.sessions import SessionTable, TranscriptTable
from ..memory.sql.stores import StoreTable
from ..memory.sql.table import Sql
from ..memory.writes import known
from ..openintent.rules.changes import redact_entry
from ..openintent.sql.entries import AgentTable
from ..openwop.commitments import screen_tags, tags_of
from ..openwop.entries import RefTable, measure
from ..openwop.proposals import (
    Proposal,
    find_proposal,
    proposal_sizes,
    proposals_of,
    redact_proposal,
    redacted,
)
from ..openwop.refs import Screen, screened
from ..recall.text.normalization import content_hash, sha256_of
from ..recall.text.summary import Transcript
from ..secrets.redaction import Rules
from ..stores.rules.rules import (
    MAX_CONTENT,
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_PAIR_KEY,
    MAX_PAIR_VALUE,
    size_of,
)

PAGE = 200  # memories, sessions or stores of one read
MAX_STORES = 100_000  # that are counted
MAX_PAGE_SIZE = 2 * 1024 * 1024  # characters that end a page early; a read has a time limit
EVERY_STORE = StoreFilter(with_archived=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFinding:
    """Where secrets stand, and how many of each kind.

    Those in names (scope, session, project, path) are reported but not redacted, as
    others refer to them. A finding in a store's own fields has no memory; `numbers` are
    earlier versions of an entry, and empty for its current one.
    """

    project: Project = NO_PROJECT
    memory: MemoryId | None = None
    session: SessionId | None = None
    store: StoreId | None = None
    entry: EntryId | None = None
    numbers: tuple[int, ...] = ()
    proposal: str | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    in_names: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPage:
    """One page of a scan: the rows it read, and what it found in them."""

    rows: int
    findings: tuple[SecretFinding, ...] = ()


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
        return await self.engine.read(caller, size)

    async def look(self, caller: Caller) -> AsyncIterator[ScanPage]:
        caller.require(Role.ADMIN)
        rules = self.rules(caller)
        for page, first in PAGES:
            after = first
            while found := await self.engine.read(caller, page, after, rules):
                after, scanned = found
                yield scanned

    async def redact(self, caller: Caller) -> AsyncIterator[ScanPage]:
        """Redact what is found, with an erasure receipt for each page and project.

        The stored answers to repeated requests are removed, whatever they say.
        """
        await Transfer(engine=self.engine).resume(caller)  # a scan does not see staged rows
        await self.engine.write(caller, lambda tx: tx[IdempotencyTable].redact_answers())
        rules = self.rules(caller)
        async for scanned in self.look(caller):
            if found := [finding for finding in scanned.findings if finding.kinds]:
                await self.engine.write(caller, redact, found, rules)
                self.on_erased(caller)
            yield scanned


def size(tx: Transaction) -> int:
    stores = tx[StoreTable].page(EVERY_STORE, Page(limit=MAX_STORES)).items
    rows = tx[MemoryTable].total() + tx[SessionTable].count(None) + len(stores)
    return rows + tx[Sql].number("SELECT count(*) FROM proposals")


def memory_page(tx: Transaction, after: MemoryId, rules: Rules) -> tuple[MemoryId, ScanPage] | None:
    room, rows, findings = MAX_PAGE_SIZE, 0, []
    for memory in tx[MemoryTable].every(after, PAGE):
        revisions = _earlier_texts(tx, memory)
        findings.append(find_in_memory(_opened(tx, memory), revisions, rules))
        rows, after = rows + 1, memory.id
        room -= sum(len(text.content) for text in (memory.text, *revisions))
        if room < 0:
            break
    return (after, _page(rows, findings)) if rows else None


def session_page(tx: Transaction, after: int, rules: Rules) -> tuple[int, ScanPage] | None:
    page = tx[SessionTable].page(None, after, PAGE)
    if not page:
        return None
    findings = (find_in_session(it, tx[TranscriptTable].get(it.id), rules) for _, it in page)
    return page[-1][0], _page(len(page), findings)


def store_page(tx: Transaction, after: str | None, rules: Rules) -> tuple[str, ScanPage] | None:
    page = tx[StoreTable].page(EVERY_STORE, Page(limit=PAGE, after=after)).items
    # An id that is not UTF-8 reads as another one, after which it may come again.
    stores = [store for store in page if after is None or store.id < after]
    if not stores:
        return None
    findings = (find_in_store(store, rules) for store in stores)
    return stores[-1].id, _page(len(stores), findings)


def version_page(
    tx: Transaction, after: tuple[MemoryId, int], rules: Rules
) -> tuple[tuple[MemoryId, int], ScanPage] | None:
    past = tx[VersionTable].past(after, PAGE)
    if not past:
        return None
    groups = groupby(past, key=lambda it: it.memory)
    findings = (find_in_versions(list(versions), rules) for _, versions in groups)
    return (past[-1].memory, past[-1].number), _page(0, findings)


def proposal_page(tx: Transaction, after: int, rules: Rules) -> tuple[int, ScanPage] | None:
    room, numbers = MAX_PAGE_SIZE, []
    for number, bytes_ in proposal_sizes(tx, after, PAGE):
        numbers.append(number)
        room -= bytes_
        if room < 0:
            break
    findings = (find_in_proposal(each, rules) for each in proposals_of(tx, numbers))
    return (numbers[-1], _page(len(numbers), findings)) if numbers else None


def find_in_proposal(proposal: Proposal, rules: Rules) -> SecretFinding | None:
    redactor, names = Redactor(rules), Redactor(rules)
    redacted(Screen(redactor), proposal)
    source = proposal.provenance
    for name in (*source.source_run_ids, source.synthesizer_model or ""):
        Screen(names).text(name)
    return _finding(SecretFinding(proposal=proposal.id), redactor, names)


def find_in_store(store: Store, rules: Rules) -> SecretFinding | None:
    redactor = Redactor(rules)
    redacted_store(redactor, store)
    return _finding(SecretFinding(store=store.id), redactor)


def find_in_memory(memory: Memory, revisions: Iterable[Text], rules: Rules) -> SecretFinding | None:
    if memory.space.traits.has_entries:
        return find_in_entry(memory, rules)
    redactor, names = Redactor(rules), Redactor(rules)
    if memory.space.traits.is_of_hosts:
        for text in (memory.text, *revisions):
            screened(redactor, text)
        return _finding(SecretFinding(memory=memory.id), redactor)
    names.text(memory.space.scope, MAX_SCOPE)
    # A session's id is reported with the session.
    redactor.memory(replace(memory, session=SessionId(""), space=Space(project=UNKNOWN_PROJECT)))
    for text in revisions:
        redactor.words(text)
    place = SecretFinding(project=memory.space.project, memory=memory.id)
    return _finding(place, redactor, names)


def find_in_entry(memory: Memory, rules: Rules) -> SecretFinding | None:
    redactor, names = Redactor(rules), Redactor(rules)
    names.text(memory.text.title, len(memory.text.title))
    redacted_content(redactor, memory.text)
    redacted_pairs(redactor, memory.extras)
    store, entry = StoreId(memory.space.scope), EntryId(memory.uid)
    return _finding(SecretFinding(memory=memory.id, store=store, entry=entry), redactor, names)


def find_in_versions(versions: Sequence[Past], rules: Rules) -> SecretFinding | None:
    redactor, numbers, first = Redactor(rules), [], versions[0]
    for past in versions:
        before = redactor.count
        redacted_content(redactor, past.text)
        if redactor.count > before:
            numbers.append(past.number)
    place = SecretFinding(memory=first.memory, store=first.store, entry=first.entry)
    return _finding(replace(place, numbers=tuple(numbers)), redactor)


def find_in_session(
    session: Session, transcript: Transcript | None, rules: Rules
) -> SecretFinding | None:
    redactor, names = Redactor(rules), Redactor(rules)
    redactor.summary(session)
    redactor.transcript(transcript or Transcript())
    names.session_id(session.id)
    names.text(session.project, len(session.project))
    return _finding(SecretFinding(project=session.project, session=session.id), redactor, names)


def redacted_store(redactor: Redactor, store: Store) -> Store:
    return replace(
        store,
        name=redactor.text(store.name, MAX_NAME),
        description=redactor.text(store.description, MAX_DESCRIPTION),
        metadata=redacted_pairs(redactor, store.metadata),
    )


def redacted_content(redactor: Redactor, text: Text) -> Text:
    return replace(text, content=redactor.text_of_bytes(text.content, MAX_CONTENT))


def redacted_pairs(redactor: Redactor, pairs: Metadata) -> Metadata:
    return {
        redactor.text(key, MAX_PAIR_KEY): redactor.text(value, MAX_PAIR_VALUE)
        for key, value in pairs.items()
    }


def _opened(tx: Transaction, memory: Memory) -> Memory:
    """The memory as it reads: what an agent has sealed lies elsewhere."""
    if not memory.space.traits.is_json or memory.text.content.startswith("{"):
        return memory
    entry = tx[AgentTable].one(memory.id)
    return replace(memory, text=replace(memory.text, content=entry.value)) if entry else memory


def _earlier_texts(tx: Transaction, memory: Memory) -> list[Text]:
    """Earlier texts of a memory; those of entries have pages of their own.

    An entry of a ref has none, but tags that its commitments wait for.
    """
    if memory.space.traits.is_of_hosts:
        tags = tuple(tags_of(tx, memory.id))
        return [replace(memory.text, content="", tags=tags)] if tags else []
    if memory.space.traits.has_entries:
        return []
    return [it.text for it in tx[RevisionTable].newest(memory)[1:] if it.text is not None]


def _finding(
    place: SecretFinding, redactor: Redactor, names: Redactor | None = None
) -> SecretFinding | None:
    in_names = names.kinds if names else {}
    if not redactor.count and not in_names:
        return None
    return replace(place, kinds=redactor.kinds, in_names=in_names)


def _page(rows: int, findings: Iterable[SecretFinding | None]) -> ScanPage:
    return ScanPage(rows=rows, findings=tuple(it for it in findings if it is not None))


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
        return finding if find_proposal(tx, finding.proposal) else None
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
    if finding.proposal is not None:
        redact_proposal(tx, finding.proposal, Screen(Redactor(rules)))
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
