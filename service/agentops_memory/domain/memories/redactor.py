"""Redaction on the way in: each noun that is written passes here, and secrets are counted."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from threading import Lock

from ..errors import Invalid, OverQuota
from ..model.access import Caller, TenantId
from ..model.memory import Change, Draft, Memory, Session, SessionId, Text
from ..secrets.redaction import DEFAULT_RULES, Redacted, Rules, require_registrable
from ..text.normalization import cut
from ..text.summary import SHOWN, Transcript, parsed_summary, summary

# Characters of what is stored. A text that its placeholders make longer is cut.
MAX_SESSION_ID = 500
MAX_TYPE = MAX_SCOPE = 50
MAX_TITLE = 500
MAX_CONTENT = 50_000
MAX_KEY = 200
MAX_TAG = 100
MAX_TAGS = 20
MAX_PROJECT = 200
MAX_SUMMARY = 50_000

SHORT, MOST_SHORT = 64, 4096  # characters of a text that is remembered, and how many are

LONGEST_ID = 256  # characters of a registered value's id
MOST_VALUES = 256  # of a run
MOST_RUNS = 1000  # of a tenant

RulesOf = Callable[[Caller], Rules]
"""The redaction rules for what a caller writes."""


def default_rules(_: Caller) -> Rules:
    """The well-known shapes and private parts, for everybody."""
    return DEFAULT_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """A run, by its tenant's name for it."""

    tenant: str
    run: str


class Registry:
    """The values registered for runs, in memory only. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tenants: dict[str, dict[RunKey, dict[tuple[str, str], None]]] = {}
        self._all: dict[str, tuple[tuple[str, str], ...]] = {}

    def register(self, run: RunKey, value_id: str, value: str) -> None:
        """Register a value for redaction from now on; idempotent.

        Invalid for a value that is too short, too long or contains a placeholder; OverQuota
        when the run has too many values or the tenant too many runs.
        """
        require_registrable(value)
        if len(value_id) > LONGEST_ID:
            raise Invalid(f"The id of a registered value has at most {LONGEST_ID} characters.")
        with self._lock:
            runs = self._tenants.setdefault(run.tenant, {})
            if run not in runs and len(runs) >= MOST_RUNS:
                raise OverQuota(f"At most {MOST_RUNS} runs register values at a time.")
            values = runs.setdefault(run, {})
            if (value_id, value) not in values and len(values) >= MOST_VALUES:
                raise OverQuota(f"A run registers at most {MOST_VALUES} values.")
            values[value_id, value] = None
            self._all.pop(run.tenant, None)

    def forget(self, run: RunKey) -> None:
        """Drop the values of a run, if it has any."""
        with self._lock:
            runs = self._tenants.get(run.tenant, {})
            runs.pop(run, None)
            if not runs:
                self._tenants.pop(run.tenant, None)
            self._all.pop(run.tenant, None)

    def runs(self, tenant: str) -> tuple[RunKey, ...]:
        """The runs of a tenant that have values."""
        with self._lock:
            return tuple(self._tenants.get(tenant, ()))

    def values(self, run: RunKey) -> tuple[tuple[str, str], ...]:
        """The (id, value) pairs of a run, in order of registration."""
        with self._lock:
            return tuple(self._tenants.get(run.tenant, {}).get(run, ()))

    def count(self, run: RunKey) -> Counter[str]:
        """How many values each id of a run has."""
        return Counter(value_id for value_id, _ in self.values(run))

    def all_of(self, tenant: str) -> tuple[tuple[str, str], ...]:
        """The distinct (id, value) pairs of a tenant's runs; the same tuple until one changes."""
        with self._lock:
            if tenant not in self._tenants:
                return ()
            if tenant not in self._all:
                runs = self._tenants[tenant].values()
                self._all[tenant] = tuple(dict.fromkeys(chain.from_iterable(runs)))
            return self._all[tenant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What is taken out of texts, in one service.

    A value registered for a run is a secret in all that its tenant writes: it may
    turn up in another run, and who wrote it there is not to be told that it is one.
    """

    exceptions: Callable[[TenantId], Rules]
    registry: Registry = field(default_factory=Registry)

    def rules(self, caller: Caller) -> Rules:
        """The rules for what a caller writes, and for what is said of its requests."""
        rules = self.exceptions(caller.tenant)
        values = self.registry.all_of(caller.tenant)
        return _with_values(rules, values) if values else rules


@lru_cache(64)
def _with_values(rules: Rules, values: tuple[tuple[str, str], ...]) -> Rules:
    return replace(rules, values=values)


@dataclass(slots=True)
class Redactor:
    """Takes secrets out of what one request writes: nouns come out as they may be stored."""

    rules: Rules
    kinds: Counter[str] = field(default_factory=Counter)  # of what was taken out
    _short: dict[str, Redacted] = field(default_factory=dict)  # texts, which rows repeat

    @property
    def count(self) -> int:
        """How many secrets were taken out."""
        return self.kinds.total()

    def whole(self, text: str) -> str:
        """The text without secrets; it may be longer than it was."""
        clean = self._redacted(text)
        if not clean.count:
            return text
        self.kinds.update(clean.kinds)
        return clean.text

    def text(self, text: str, most: int) -> str:
        """The text without secrets, at most so long."""
        clean = self.whole(text)
        return text if clean is text else clean[:most]

    def text_of_bytes(self, text: str, most: int) -> str:
        """The text without secrets, at most so many bytes of UTF-8."""
        clean = self.whole(text)
        return text if clean is text else clean.encode()[:most].decode(errors="ignore")

    def session_id(self, session: SessionId) -> SessionId:
        return SessionId(self.text(session, MAX_SESSION_ID))

    def words(self, text: Text) -> Text:
        return Text(
            type=self.text(text.type, MAX_TYPE),
            title=self.text(text.title, MAX_TITLE),
            content=self.text(text.content, MAX_CONTENT),
            tags=self._tags(text.tags),
        )

    def draft(self, draft: Draft) -> Draft:
        return replace(
            draft,
            session=self.session_id(draft.session),
            space=replace(draft.space, scope=self.text(draft.space.scope, MAX_SCOPE)),
            text=self.words(draft.text),
            key=self._key(draft.key),
        )

    def change(self, change: Change) -> Change:
        return replace(
            change,
            type=None if change.type is None else self.text(change.type, MAX_TYPE),
            title=None if change.title is None else self.text(change.title, MAX_TITLE),
            content=None if change.content is None else self.text(change.content, MAX_CONTENT),
            tags=None if change.tags is None else self._tags(change.tags),
        )

    def session(self, session: Session) -> Session:
        return replace(self.summary(session), id=self.session_id(session.id))

    def summary(self, session: Session) -> Session:
        """The session with a summary without secrets; one of ours stays one of ours."""
        clean = self.text(session.summary, MAX_SUMMARY)
        if clean != session.summary:
            clean = self._resummarized(session.summary) or clean
        return replace(session, summary=clean)

    def transcript(self, digest: Transcript) -> Transcript:
        first = cut(self.whole(digest.first), SHOWN)
        last = cut(self.whole(digest.last), SHOWN) if digest.user > 1 else first
        return replace(digest, first=first, last=last)

    def memory(self, memory: Memory) -> Memory:
        before, space = self.count, memory.space
        session = memory.session and self.session_id(memory.session)
        scope = self.text(space.scope, MAX_SCOPE)
        text = self.words(memory.text)
        key = self._key(memory.key)
        promoted_to = memory.promoted_to and self.text(memory.promoted_to, MAX_TITLE)
        if self.count == before:
            return memory
        space = replace(space, scope=scope)
        return replace(
            memory, session=session, space=space, text=text, key=key, promoted_to=promoted_to
        )

    def _resummarized(self, text: str) -> str:
        """The summary with both messages cleaned, then cut; nothing if a secret would be left."""
        again = summary(Redactor(self.rules).transcript(parsed_summary(text)))
        return "" if self.rules.redacted(again).count else again

    def _redacted(self, text: str) -> Redacted:
        if len(text) > SHORT:
            return self.rules.redacted(text)
        if text not in self._short:
            if len(self._short) == MOST_SHORT:
                self._short.clear()
            self._short[text] = self.rules.redacted(text)
        return self._short[text]

    def _key(self, key: str | None) -> str | None:
        return None if key is None else self.text(key, MAX_KEY)

    def _tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.text(tag, MAX_TAG) for tag in tags)
