"""What may be stored: within which limits, and redacted on the way in."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from sys import getsizeof
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from ..engine.engine import Transaction
from ..errors import Invalid, InvalidFields, NotFound, OverQuota, TooMany
from ..light import dataclass, field, replace
from ..recall.summary import SHOWN as LONGEST_MESSAGE
from ..recall.summary import Transcript, parsed_summary, summary
from ..recall.text import cut, leaves
from ..recall.visible import invisible
from ..secrets.redaction import DEFAULT_RULES, Rules, require_registrable
from .access import ANY, Caller, TenantId
from .memory import Change, Draft, Memory, Session, SessionId, Text
from .space import Project, StoreId
from .table import Sql

NO_STORE = "No such memory store."
QUOTA_MARGIN = 16 * 1024 * 1024  # bytes past the quota, for what is small and must continue


def require_room(tx: Transaction, size: int = 0) -> None:
    """Refuse with OverQuota unless more than `size` bytes of the quota are left."""
    if tx.room is not None and tx.room <= size:
        raise OverQuota("The tenant has reached its storage quota; nothing was stored.")


def require_margin(tx: Transaction) -> None:
    """The same for a session or an idempotency record, which may exceed the quota a little.

    Without a session an agent's messages are lost, and a request that frees space needs its record.
    """
    require_room(tx, -QUOTA_MARGIN)


def faults_of(names: Mapping[str, str]) -> dict[str, str]:
    """Why the text of a field cannot be a new name, by field.

    A project whose name is a pattern could be taken for all that match it.
    """
    signs = ((field, invisible(name)) for field, name in names.items())
    faults = {field: f"has the invisible character {sign}" for field, sign in signs if sign}
    if ANY in names.get("project", ""):
        faults["project"] = f"has a {ANY}, as key patterns have"
    return faults


def named_tags(tags: Collection[str]) -> dict[str, str]:
    return {f"tags[{position}]": tag for position, tag in enumerate(tags)}


def refuse(faults: Mapping[str, str], known: Collection[str] = ()) -> None:
    """Raise InvalidFields for the faults, except those of names that are already in use."""
    named = [f"{field} {fault}" for field, fault in faults.items() if field not in known]
    if named:
        raise InvalidFields(f"validation failed: {'; '.join(named)}")


def is_known_project(tx: Transaction, project: Project) -> bool:
    """Whether a project has sessions or memories, live or deleted."""
    return tx[Sql].exists(
        """SELECT 1 FROM sessions WHERE project = :project
            UNION ALL
           SELECT 1
             FROM spaces s
            WHERE s.project = :project
                  AND EXISTS (SELECT 1 FROM memories WHERE space_id = s.id)
            LIMIT 1""",
        project=project,
    )


def require_store(tx: Transaction, store: StoreId) -> None:
    """Refuse callers who may not read stores with Denied, and an unknown one with NotFound."""
    tx.caller.require_stores()
    known = "SELECT 1 FROM stores WHERE uid = :uid AND erasure_id IS NULL"
    if not tx[Sql].exists(known, uid=store):
        raise NotFound(NO_STORE)


# Characters, by the contract of AgentOps REST. Text that placeholders make longer is cut.
MAX_SESSION_ID = 500
MAX_TYPE = MAX_SCOPE = 50
MAX_TITLE = 500
MAX_CONTENT = 50_000
MAX_KEY = 200
MAX_TAG = 100
MAX_TAGS = 20
MAX_PROJECT = 200
MAX_SUMMARY = 50_000

APART = "\n\0\n"  # no text that is stored has a NUL
TOGETHER = 20  # memories of one pass
BRIEF = 4096  # characters below which another thread would take longer

LONGEST_ID = 256  # characters of a registered value's id
MOST_VALUES = 256  # of a run
MOST_RUNS = 1000  # of a tenant
MOST_BYTES = 64 * 1024 * 1024  # of a tenant, unless a setting says otherwise

# Bytes that are held beside the strings themselves, measured by tracemalloc on 64-bit CPython:
# of a value its pair, its place in dictionaries and the name in its placeholder (165 to 590), of a
# run with values its key and its dictionary (up to 850). Rounded up.
VALUE_OVERHEAD, RUN_OVERHEAD = 640, 1024

# Seconds after which a refused registration may be repeated. When a run ends is not known; the
# clients' three attempts of ten seconds leave room for two pauses of this length.
RETRY_AFTER = 5

P = ParamSpec("P")
T = TypeVar("T")

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
    """The values registered for runs, in memory only. Thread-safe.

    Those of one tenant take at most `most` bytes, overheads included.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._lock = Lock()
        self._most = most
        self._tenants: dict[str, dict[RunKey, dict[tuple[str, str], int]]] = {}  # with their sizes
        self._sizes: Counter[str] = Counter()
        self._rules: dict[str, tuple[Rules, Rules]] = {}  # without and with the values

    def register(self, run: RunKey, value_id: str, value: str) -> None:
        """Register a value for redaction from now on; idempotent.

        Invalid for a value that is too short, too long or contains a placeholder; OverQuota
        when the run has too many values or the tenant too many runs; TooMany when the values
        of the tenant would take more memory than they may.
        """
        require_registrable(value)
        if len(value_id) > LONGEST_ID:
            raise Invalid(f"The id of a registered value has at most {LONGEST_ID} characters.")
        size = getsizeof(value_id) + getsizeof(value) + VALUE_OVERHEAD
        if size + RUN_OVERHEAD > self._most:
            raise Invalid("A registered value must fit into the limit for all values of a tenant.")
        with self._lock:
            runs = self._tenants.get(run.tenant, {})
            values = runs.get(run, {})
            if (value_id, value) in values:
                return
            if not values and len(runs) >= MOST_RUNS:
                raise OverQuota(f"At most {MOST_RUNS} runs register values at a time.")
            if len(values) >= MOST_VALUES:
                raise OverQuota(f"A run registers at most {MOST_VALUES} values.")
            added = size if values else size + RUN_OVERHEAD
            if self._sizes[run.tenant] + added > self._most:
                raise TooMany(
                    f"The values registered by this tenant's runs take {self._most:,} "
                    "bytes of memory, which is the limit; the end of a run frees its values.",
                    RETRY_AFTER,
                    scope="tenant",
                )
            values[value_id, value] = size
            self._tenants.setdefault(run.tenant, runs)[run] = values
            self._sizes[run.tenant] += added
            self._rules.pop(run.tenant, None)

    def forget(self, run: RunKey) -> None:
        with self._lock:
            runs = self._tenants.get(run.tenant, {})
            if run not in runs:
                return
            self._sizes[run.tenant] -= sum(runs.pop(run).values()) + RUN_OVERHEAD
            self._rules.pop(run.tenant, None)
            if not runs:
                del self._tenants[run.tenant], self._sizes[run.tenant]

    def runs(self, tenant: str) -> tuple[RunKey, ...]:
        with self._lock:
            return tuple(self._tenants.get(tenant, ()))

    def values(self, run: RunKey) -> tuple[tuple[str, str], ...]:
        """The (id, value) pairs of a run, in order of registration."""
        with self._lock:
            return tuple(self._tenants.get(run.tenant, {}).get(run, ()))

    def count(self, run: RunKey) -> Counter[str]:
        return Counter(value_id for value_id, _ in self.values(run))

    def occurs_in(self, tenant: str, text: str) -> bool:
        """Whether a value of a tenant's runs occurs in the text."""
        with self._lock:
            pairs = chain.from_iterable(self._tenants.get(tenant, {}).values())
            return any(value in text for _, value in pairs)

    def rules(self, tenant: str, base: Rules) -> Rules:
        """The base rules with the values of a tenant's runs; the same object until one changes.

        They are cached here alone, so that a forgotten value leaves memory.
        """
        with self._lock:
            if tenant not in self._tenants:
                return base
            known = self._rules.get(tenant)
            if known is None or known[0] != base:
                runs = self._tenants[tenant].values()
                values = tuple(dict.fromkeys(chain.from_iterable(runs)))
                known = self._rules[tenant] = base, replace(base, values=values)
            return known[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What is taken out of texts, in one service.

    A value registered for a run is a secret in all that its tenant writes: it may
    turn up in another run, and its writer there must not learn that it is one.
    """

    exceptions: Callable[[TenantId], Rules]
    registry: Registry = field(default_factory=Registry)

    def rules(self, caller: Caller) -> Rules:
        """The rules for what a caller writes, and for logs and spans of its requests."""
        return self.registry.rules(caller.tenant, self.exceptions(caller.tenant))

    def echo(self, caller: Caller, text: str) -> str:
        """A text of a request as its answer may repeat it: without registered values."""
        if not self.registry.occurs_in(caller.tenant, text):
            return text
        return self.rules(caller).redacted(text).text


@dataclass(slots=True)
class Redactor:
    """Removes secrets from what one request writes, before it is stored."""

    rules: Rules
    kinds: Counter[str] = field(default_factory=Counter)  # of what was taken out

    @property
    def count(self) -> int:
        return self.kinds.total()

    def whole(self, text: str) -> str:
        """The text without secrets; it may be longer than it was."""
        clean = self.rules.redacted(text)
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
            type=self.text(text.type, MAX_TYPE), title=self.text(text.title, MAX_TITLE),
            content=self.text(text.content, MAX_CONTENT), tags=self._tags(text.tags),
        )  # fmt: skip

    def draft(self, draft: Draft) -> Draft:
        return draft if self.are_clean(_texts_of(draft)) else replace(draft, **self._clean(draft))

    def change(self, change: Change) -> Change:
        limits = {"type": MAX_TYPE, "title": MAX_TITLE, "content": MAX_CONTENT}
        texts = {it: getattr(change, it) for it in limits if getattr(change, it) is not None}
        clean: dict[str, Any] = {it: self.text(text, limits[it]) for it, text in texts.items()}
        return replace(change, tags=change.tags and self._tags(change.tags), **clean)

    def session(self, session: Session) -> Session:
        return replace(self.summary(session), id=self.session_id(session.id))

    def summary(self, session: Session) -> Session:
        """The session with its summary redacted; a generated summary keeps its form."""
        clean = self.text(session.summary, MAX_SUMMARY)
        if clean != session.summary:  # both messages are cleaned, then cut, unless one is left
            digest = Redactor(self.rules).transcript(parsed_summary(session.summary))
            again = summary(digest)
            clean = clean if self.rules.redacted(again).count else again or clean
        return replace(session, summary=clean)

    def transcript(self, digest: Transcript) -> Transcript:
        first = cut(self.whole(digest.first), LONGEST_MESSAGE)
        last = cut(self.whole(digest.last), LONGEST_MESSAGE) if digest.user > 1 else first
        return replace(digest, first=first, last=last)

    def memories(self, memories: Sequence[Memory]) -> Iterator[Memory]:
        """The memories without secrets. Most have none, so TOGETHER of them are checked at once."""
        for start in range(0, len(memories), TOGETHER):
            some = memories[start : start + TOGETHER]
            texts = chain.from_iterable(map(_texts_of, some))
            yield from some if self.are_clean(texts) else map(self.memory, some)

    def memory(self, memory: Memory) -> Memory:
        before, fields = self.count, self._clean(memory)
        promoted_to = memory.promoted_to and self.text(memory.promoted_to, MAX_TITLE)
        is_clean = self.count == before
        return memory if is_clean else replace(memory, **fields, promoted_to=promoted_to)

    def are_clean(self, texts: Iterable[str | None]) -> bool:
        """Whether no text has a secret, checked in one pass over all of them joined.

        No pattern matches across the separator, which counts as the end of a line. False means
        only that each text must be checked alone: the joined text may match where none of them
        does, and a private key's headers are told from its remains by the end of a line.
        """
        every = APART.join(filter(None, texts))
        return "PRIVATE KEY" not in every and not self.rules.redacted(every).count

    def _clean(self, of: Draft | Memory) -> dict[str, Any]:
        return {
            "session": of.session and self.session_id(of.session),
            "space": replace(of.space, scope=self.text(of.space.scope, MAX_SCOPE)),
            "text": self.words(of.text),
            "key": None if of.key is None else self.text(of.key, MAX_KEY),
        }

    def _tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.text(tag, MAX_TAG) for tag in tags)


async def aside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run work on texts of this size, in a thread unless they are short."""
    if size < BRIEF:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _texts_of(of: Memory | Draft) -> tuple[str | None, ...]:
    text, promoted_to = of.text, of.promoted_to if isinstance(of, Memory) else None
    return (
        of.session, of.space.scope, text.type, text.title, text.content, *text.tags, of.key,
        promoted_to,
    )  # fmt: skip


WITHHELD = "[REDACTED:labelled-secret]"
"""What replaces a string in which the secret cannot be located."""


@dataclass(frozen=True, slots=True)
class JsonRedactor:
    """Takes secrets out of values of JSON; the names of members are texts as all others are."""

    redactor: Redactor
    whole: Callable[[str], str]  # a text without secrets; what it counts, the redactor has counted

    def document(self, value: dict[str, Any]) -> dict[str, Any]:
        """An object without secrets, also those that its text tells of several strings.

        Such are a variable beside its name, an option before its argument, a key of JSON.
        """
        clean = self._members(value)
        redacted = self.redactor.rules.redacted(written(clean))
        if not redacted.count:
            return clean
        try:
            members = json.loads(redacted.text)
        except ValueError:  # it went beyond the quotes
            return clean
        if not isinstance(members, dict):
            return clean
        self.redactor.kinds.update(redacted.kinds)
        return members

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._members(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self.whole(value) if isinstance(value, str) else value

    def _members(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The members; a name that is the same as one before without its secret has a number."""
        clean: dict[str, Any] = {}
        for name, item in value.items():
            new, redacted = self._member(name, item)
            numbered = (f"{new} ({number})" for number in count(2))
            clean[next(it for it in chain([new], numbered) if it not in clean)] = redacted
        return clean

    def _member(self, name: str, value: Any) -> tuple[str, Any]:
        if not isinstance(value, str):
            return self.whole(name), self.value(value)
        clean = self.whole(value)
        if clean == value:
            beside = self.redactor.rules.redacted(written({name: value}))
            self.redactor.kinds.update(beside.kinds)
            if beside.count:
                try:
                    ((name, clean),) = json.loads(beside.text).items()
                except (ValueError, AttributeError):  # it went beyond the quotes: none is kept
                    clean = WITHHELD
        return self.whole(name), clean


def is_plain(text: str, value: object, are_clean: Callable[[Sequence[str]], bool]) -> bool:
    """Whether no string of JSON has a secret, judged by its text and its value as a whole.

    The text tells of names and what stands beside them, unless escapes may hide it. In a line
    each, strings begin and end as they do by themselves, which some secrets are known by.
    """
    return "\\" not in text and are_clean([text, "\n".join(texts(value))])


def texts(value: object) -> Iterator[str]:
    """Every string in a value of JSON, and every name."""
    return (it for it in leaves(value) if isinstance(it, str))


def written(value: object) -> str:
    """Compact JSON; a ValueError for a number that JSON has not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
