"""What a scan finds: where secrets stand in stored rows, and of which kinds. Reads only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ..memories.redactor import MAX_SCOPE, Redactor
from ..model.memory import Memory, MemoryId, Session, SessionId, Text
from ..model.space import NO_PROJECT, UNKNOWN_PROJECT, Project, Space, StoreId
from ..model.stores import EntryId, Metadata, Page, Past, Store, StoresSeen
from ..ports.engine import Transaction
from ..secrets.redaction import Rules
from ..stores.rules import MAX_CONTENT, MAX_DESCRIPTION, MAX_NAME, MAX_PAIR_KEY, MAX_PAIR_VALUE
from ..text.summary import Transcript

PAGE = 200  # memories, sessions or stores of one read
MAX_STORES = 100_000  # that are counted
MAX_PAGE_SIZE = 2 * 1024 * 1024  # characters that end a page early; a read has a time limit
EVERY_STORE = StoresSeen(with_archived=True)


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
    kinds: Mapping[str, int]
    in_names: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPage:
    """One page of a scan: the rows it read, and what it found in them."""

    rows: int
    findings: tuple[SecretFinding, ...] = ()


def size(tx: Transaction) -> int:
    stores = tx.stores.page(EVERY_STORE, Page(limit=MAX_STORES)).items
    return tx.memories.total() + tx.sessions.count(None) + len(stores)


def memory_page(tx: Transaction, after: MemoryId, rules: Rules) -> tuple[MemoryId, ScanPage] | None:
    room, rows, findings = MAX_PAGE_SIZE, 0, []
    for memory in tx.memories.every(after, PAGE):
        revisions = _earlier_texts(tx, memory)
        findings.append(find_in_memory(memory, revisions, rules))
        rows, after = rows + 1, memory.id
        room -= sum(len(text.content) for text in (memory.text, *revisions))
        if room < 0:
            break
    return (after, ScanPage(rows=rows, findings=_present(findings))) if rows else None


def session_page(tx: Transaction, after: int, rules: Rules) -> tuple[int, ScanPage] | None:
    page = tx.sessions.page(None, after, PAGE)
    if not page:
        return None
    sessions = [session for _, session in page]
    findings = (
        find_in_session(session, tx.transcripts.get(session.id), rules) for session in sessions
    )
    return page[-1][0], ScanPage(rows=len(sessions), findings=_present(findings))


def store_page(tx: Transaction, after: str | None, rules: Rules) -> tuple[str, ScanPage] | None:
    page = tx.stores.page(EVERY_STORE, Page(limit=PAGE, after=after)).items
    # An id that is not UTF-8 reads as another one, after which it may come again.
    stores = [store for store in page if after is None or store.id < after]
    if not stores:
        return None
    findings = (find_in_store(store, rules) for store in stores)
    return stores[-1].id, ScanPage(rows=len(stores), findings=_present(findings))


def version_page(
    tx: Transaction, after: tuple[MemoryId, int], rules: Rules
) -> tuple[tuple[MemoryId, int], ScanPage] | None:
    past = tx.versions.past(after, PAGE)
    if not past:
        return None
    findings = [
        find_in_versions(list(versions), rules)
        for _, versions in groupby(past, key=lambda it: it.memory)
    ]
    return (past[-1].memory, past[-1].number), ScanPage(rows=0, findings=_present(findings))


def find_in_store(store: Store, rules: Rules) -> SecretFinding | None:
    redactor, _ = redacted_store(store, rules)
    return (
        SecretFinding(store=store.id, kinds=redactor.kinds, in_names={}) if redactor.count else None
    )


def find_in_memory(memory: Memory, revisions: Iterable[Text], rules: Rules) -> SecretFinding | None:
    if memory.space.is_store:
        return find_in_entry(memory, rules)
    redactor = Redactor(rules)
    names = Redactor(rules)
    names.text(memory.space.scope, MAX_SCOPE)
    # A session's id is reported with the session.
    redactor.memory(replace(memory, session=SessionId(""), space=Space(project=UNKNOWN_PROJECT)))
    for text in revisions:
        redactor.words(text)
    return _finding(redactor, names, memory.space.project, memory=memory.id)


def find_in_entry(memory: Memory, rules: Rules) -> SecretFinding | None:
    redactor, names = entry_redactors(memory, rules)
    if not redactor.count + names.count:
        return None
    return SecretFinding(
        memory=memory.id,
        store=StoreId(memory.space.scope),
        entry=EntryId(memory.uid),
        kinds=redactor.kinds,
        in_names=names.kinds,
    )


def find_in_versions(versions: Sequence[Past], rules: Rules) -> SecretFinding | None:
    redactors = {past.number: version_redactor(past.text, rules) for past in versions}
    numbers = tuple(number for number, redactor in redactors.items() if redactor.count)
    if not numbers:
        return None
    return SecretFinding(
        memory=versions[0].memory,
        store=versions[0].store,
        entry=versions[0].entry,
        numbers=numbers,
        kinds=sum((redactor.kinds for redactor in redactors.values()), Counter()),
        in_names={},
    )


def find_in_session(
    session: Session, transcript: Transcript | None, rules: Rules
) -> SecretFinding | None:
    redactor, names = Redactor(rules), Redactor(rules)
    redactor.summary(session)
    redactor.transcript(transcript or Transcript())
    names.session_id(session.id)
    names.text(session.project, len(session.project))
    return _finding(redactor, names, session.project, session=session.id)


def _finding(
    redactor: Redactor,
    names: Redactor,
    project: Project,
    *,
    memory: MemoryId | None = None,
    session: SessionId | None = None,
) -> SecretFinding | None:
    if not redactor.count + names.count:
        return None
    return SecretFinding(
        project=project,
        memory=memory,
        session=session,
        kinds=redactor.kinds,
        in_names=names.kinds,
    )


def _present(findings: Iterable[SecretFinding | None]) -> tuple[SecretFinding, ...]:
    return tuple(finding for finding in findings if finding is not None)


def entry_redactors(memory: Memory, rules: Rules) -> tuple[Redactor, Redactor]:
    """The redactors that counted the secrets of an entry's current version, and of its path."""
    redactor, names = Redactor(rules), Redactor(rules)
    names.text(memory.text.title, len(memory.text.title))
    redacted_content(redactor, memory.text)
    redacted_pairs(redactor, memory.extras)
    return redactor, names


def version_redactor(text: Text, rules: Rules) -> Redactor:
    """The redactor that counted the secrets of an earlier version."""
    redactor = Redactor(rules)
    redacted_content(redactor, text)
    return redactor


def redacted_store(store: Store, rules: Rules) -> tuple[Redactor, Store]:
    """The redactor that counted the secrets in a store's own fields, and the clean store."""
    redactor = Redactor(rules)
    clean = replace(
        store,
        name=redactor.text(store.name, MAX_NAME),
        description=redactor.text(store.description, MAX_DESCRIPTION),
        metadata=redacted_pairs(redactor, store.metadata),
    )
    return redactor, clean


def redacted_content(redactor: Redactor, text: Text) -> Text:
    return replace(text, content=redactor.text_of_bytes(text.content, MAX_CONTENT))


def redacted_pairs(redactor: Redactor, pairs: Metadata) -> Metadata:
    return {
        redactor.text(key, MAX_PAIR_KEY): redactor.text(value, MAX_PAIR_VALUE)
        for key, value in pairs.items()
    }


def _earlier_texts(tx: Transaction, memory: Memory) -> list[Text]:
    """Earlier texts of a project's memory; those of entries have pages of their own."""
    if memory.space.is_store:
        return []
    return [it.text for it in tx.revisions.newest(memory)[1:] if it.text is not None]
