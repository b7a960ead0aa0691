"""What a scan finds: where secrets stand in stored rows, and of which kinds. Reads only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ...engine.engine import Transaction
from ...openintent.sql.entries import AgentTable
from ...openwop.commitments import tags_of
from ...openwop.model.proposals import Proposal, ProposalId
from ...openwop.rules.proposals.rules import redacted
from ...openwop.rules.screen import Screen, screened
from ...openwop.sql.proposals import ProposalTable
from ...recall.text.summary import Transcript
from ...secrets.redaction import Rules
from ...stores.rules.rules import (
    MAX_CONTENT,
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_PAIR_KEY,
    MAX_PAIR_VALUE,
)
from ..model.memory import Memory, MemoryId, Session, SessionId, Text
from ..model.space import NO_PROJECT, UNKNOWN_PROJECT, Project, Space, StoreId
from ..model.stores import EntryId, Metadata, Page, Past, Store, StoreFilter
from ..redactor import MAX_SCOPE, Redactor
from ..sql.memories import MemoryTable
from ..sql.revisions import RevisionTable, VersionTable
from ..sql.sessions import SessionTable, TranscriptTable
from ..sql.stores import StoreTable

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
    proposal: ProposalId | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    in_names: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPage:
    """One page of a scan: the rows it read, and what it found in them."""

    rows: int
    findings: tuple[SecretFinding, ...] = ()


def size(tx: Transaction) -> int:
    stores = tx[StoreTable].page(EVERY_STORE, Page(limit=MAX_STORES)).items
    rows = tx[MemoryTable].total() + tx[SessionTable].count(None) + len(stores)
    return rows + tx[ProposalTable].total()


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
    for listed in tx[ProposalTable].every(after, PAGE):
        numbers.append(listed.number)
        room -= listed.size
        if room < 0:
            break
    findings = (find_in_proposal(each, rules) for each in tx[ProposalTable].some(numbers))
    return (numbers[-1], _page(len(numbers), findings)) if numbers else None


def find_in_proposal(proposal: Proposal, rules: Rules) -> SecretFinding | None:
    redactor, names = Redactor(rules), Redactor(rules)
    redacted(Screen(redactor), proposal)
    for name in (*proposal.source_runs, proposal.synthesizer or ""):
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
    """The store with its own fields redacted."""
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
    """The finding with the kinds that were counted at a place; None if there are none."""
    in_names = names.kinds if names else {}
    if not redactor.count and not in_names:
        return None
    return replace(place, kinds=redactor.kinds, in_names=in_names)


def _page(rows: int, findings: Iterable[SecretFinding | None]) -> ScanPage:
    return ScanPage(rows=rows, findings=tuple(it for it in findings if it is not None))
