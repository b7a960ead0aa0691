"""What a scan finds: where secrets stand in what is stored, and of which kind they are."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..memories.redactor import MAX_SCOPE, Redactor
from ..model.memory import Memory, MemoryId, Session, SessionId, Text
from ..model.space import NO_PROJECT, UNKNOWN_PROJECT, Project, Space, StoreId
from ..model.stores import EntryId, Past, Store
from ..secrets.redaction import Rules
from ..text.summary import Transcript
from .scan_stores import screened_entry, screened_past, screened_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where secrets stand, and how many of which kind.

    Those in names are not taken out: of a scope, a session or a project, or in a
    path, to which others refer. What a store says of itself has no memory; `numbers`
    are those of earlier versions of an entry, else it is what the entry says now.
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
class Scanned:
    """How far a scan is, and what it has found since it last said so."""

    rows: int
    findings: tuple[Finding, ...] = ()


def in_store(store: Store, rules: Rules) -> Finding | None:
    redactor, _ = screened_store(store, rules)
    return Finding(store=store.id, kinds=redactor.kinds, in_names={}) if redactor.count else None


def in_memory(memory: Memory, revisions: Iterable[Text], rules: Rules) -> Finding | None:
    if memory.space.is_store:
        return in_entry(memory, rules)
    redactor = Redactor(rules)
    names = Redactor(rules)
    names.text(memory.space.scope, MAX_SCOPE)
    # Its session's id is the session's matter.
    redactor.memory(replace(memory, session=SessionId(""), space=Space(project=UNKNOWN_PROJECT)))
    for text in revisions:
        redactor.words(text)
    return _finding(redactor, names, memory.space.project, memory=memory.id)


def in_entry(memory: Memory, rules: Rules) -> Finding | None:
    redactor, names = screened_entry(memory, rules)
    if not redactor.count + names.count:
        return None
    return Finding(
        memory=memory.id,
        store=StoreId(memory.space.scope),
        entry=EntryId(memory.uid),
        kinds=redactor.kinds,
        in_names=names.kinds,
    )


def in_past(versions: Sequence[Past], rules: Rules) -> Finding | None:
    screens = {past.number: screened_past(past.text, rules) for past in versions}
    numbers = tuple(number for number, redactor in screens.items() if redactor.count)
    if not numbers:
        return None
    return Finding(
        memory=versions[0].memory,
        store=versions[0].store,
        entry=versions[0].entry,
        numbers=numbers,
        kinds=sum((redactor.kinds for redactor in screens.values()), Counter()),
        in_names={},
    )


def in_session(session: Session, told: Transcript | None, rules: Rules) -> Finding | None:
    redactor, names = Redactor(rules), Redactor(rules)
    redactor.summary(session)
    redactor.transcript(told or Transcript())
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
) -> Finding | None:
    if not redactor.count + names.count:
        return None
    return Finding(
        project=project,
        memory=memory,
        session=session,
        kinds=redactor.kinds,
        in_names=names.kinds,
    )


def some(findings: Iterable[Finding | None]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding is not None)
