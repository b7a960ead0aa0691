"""Checks before storing: limits and quotas, allowed names, and redaction of secrets."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from sys import getsizeof
from threading import Lock
from typing import Any, Literal, ParamSpec, TypeVar

from ..engine.engine import Transaction
from ..engine.files import opened, os_errors_as
from ..errors import Invalid, InvalidFields, NotFound, OverQuota, StartRefused, TooMany
from ..light import dataclass, field, replace
from ..recall.summary import SHOWN as LONGEST_MESSAGE, Transcript, parsed_summary, summary
from ..recall.text import cut, invisible, leaves
from ..secrets.redaction import DEFAULT_RULES, Rules, require_registrable
from .access import ANY, Caller, TenantId, tenant_id
from .memory import Change, Draft, Memory, Session, SessionId, Text
from .space import Project, StoreId
from .table import Sql

NO_STORE = "No such memory store."
LONGEST_FILE = 1024 * 1024  # bytes of a redaction file
QUOTA_MARGIN = 16 * 1024 * 1024  # bytes beyond the quota, for small writes that must not fail


def require_room(tx: Transaction, size: int = 0) -> None:
    """Refuse with OverQuota unless more than `size` bytes of the quota are left."""
    if tx.room is not None and tx.room <= size:
        raise OverQuota("The tenant has reached its storage quota; nothing was stored.")


def require_margin(tx: Transaction) -> None:
    """Refuse a session or an idempotency record beyond the quota and a margin.

    Without a session an agent's messages are lost, and a request that frees space needs its record.
    """
    require_room(tx, -QUOTA_MARGIN)


def faults_of(names: Mapping[str, str]) -> dict[str, str]:
    """Return why the texts of fields are not allowed as new names, by field.

    A project named like a pattern could be mistaken for all projects that match it.
    """
    chars = ((field, invisible(name)) for field, name in names.items())
    faults = {field: f"has the invisible character {char}" for field, char in chars if char}
    if ANY in names.get("project", ""):
        faults["project"] = f"has a {ANY}, as key patterns have"
    return faults


def named_tags(tags: Collection[str]) -> dict[str, str]:
    return {f"tags[{position}]": tag for position, tag in enumerate(tags)}


def refuse(faults: Mapping[str, str], known: Collection[str] = ()) -> None:
    """Raise InvalidFields for the faults, except for names that are already in use."""
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
    """Denied if the caller may not access stores; NotFound if the store is unknown."""
    tx.caller.require_stores()
    known = "SELECT 1 FROM stores WHERE uid = :uid AND erasure_id IS NULL"
    if not tx[Sql].exists(known, uid=store):
        raise NotFound(NO_STORE)


# In characters, by the contract of AgentOps REST. Text that placeholders make longer is cut.
MAX_SESSION_ID = 500
MAX_TYPE = MAX_SCOPE = 50
MAX_TITLE = 500
MAX_CONTENT = 50_000
MAX_KEY = 200
MAX_TAG = 100
MAX_TAGS = 20
MAX_PROJECT = 200
MAX_SUMMARY = 50_000

SEPARATOR = "\n\0\n"  # separates joined texts, as no stored text has a NUL
BATCH = 20  # records checked in one pass
INLINE_LIMIT = 4096  # characters below which another thread takes longer

MOST_VALUES = 256  # most registered values of a run
MOST_RUNS = 1000  # most runs of a tenant with registered values
MOST_BYTES = 64 * 1024 * 1024  # default limit for the registered values of a tenant

# Bytes in addition to the strings, measured by tracemalloc on 64-bit CPython: for a value its pair,
# its slot in dictionaries and the name in its placeholder (165 to 590), for a run with values its
# key and its dictionary (up to 850). Rounded up.
VALUE_OVERHEAD, RUN_OVERHEAD = 640, 1024

# Seconds until a refused registration may be retried. The end of a run cannot be predicted; clients
# make three attempts of ten seconds, which leaves room for two pauses of this length.
RETRY_AFTER = 5

P = ParamSpec("P")
T = TypeVar("T")

RulesOf = Callable[[Caller], Rules]
"""Returns the redaction rules for the texts of a caller."""


class Redaction:
    """The redaction of texts in one service: exceptions, and the values registered for runs.

    A value registered for a run is a secret in all texts of the tenant: it may occur in another
    run, whose writer must not learn that it is a secret. The values are in memory only; those of
    one tenant take at most `most` bytes, including overhead. Thread-safe.
    """

    def __init__(self, exceptions: Mapping[TenantId, Rules], most: int = MOST_BYTES) -> None:
        self._lock = Lock()
        self._exceptions, self._most = exceptions, most
        # The size of each (id, value), by tenant and run.
        self._runs: dict[TenantId, dict[str, dict[tuple[str, str], int]]] = {}
        self._rules: dict[TenantId, Rules] = {}

    def rules(self, caller: Caller) -> Rules:
        """Return the rules for a caller's texts, and for the logs and spans of its requests.

        Cached until a value of the tenant changes. Nothing else caches them, so that a forgotten
        value leaves memory.
        """
        tenant = caller.tenant
        with self._lock:
            if (rules := self._rules.get(tenant)) is None:
                rules = self._exceptions.get(tenant, DEFAULT_RULES)
                every = chain.from_iterable(self._runs.get(tenant, {}).values())
                if values := tuple(dict.fromkeys(every)):
                    rules = replace(rules, values=values)
                self._rules[tenant] = rules
            return rules

    def echo(self, caller: Caller, text: str) -> str:
        """Return a text of a request without registered values, as a response may repeat it."""
        rules = self.rules(caller)
        return rules.redacted(text).text if rules.has_value_in(text) else text

    def register(self, tenant: TenantId, run: str, value_id: str, value: str) -> None:
        """Register a value for redaction from now on; idempotent.

        Invalid for a value that is too short, too long or contains a placeholder; OverQuota
        if the run has too many values or the tenant too many runs; TooMany if the values of
        the tenant would exceed their memory limit.
        """
        require_registrable(value)
        size = getsizeof(value_id) + getsizeof(value) + VALUE_OVERHEAD
        if size + RUN_OVERHEAD > self._most:
            raise Invalid("A registered value must fit into the limit for all values of a tenant.")
        with self._lock:
            runs = dict(self._runs.get(tenant, {}))
            values = runs.setdefault(run, {})
            if (value_id, value) in values:
                return
            if len(runs) > MOST_RUNS:
                raise OverQuota(f"At most {MOST_RUNS} runs register values at a time.")
            if len(values) >= MOST_VALUES:
                raise OverQuota(f"A run registers at most {MOST_VALUES} values.")
            if size + sum(sum(it.values()) + RUN_OVERHEAD for it in runs.values()) > self._most:
                raise TooMany(
                    f"The values registered by this tenant's runs take {self._most:,} "
                    "bytes of memory, which is the limit; the end of a run frees its values.",
                    RETRY_AFTER,
                    scope="tenant",
                )
            values[value_id, value] = size
            self._runs[tenant] = runs
            self._rules.pop(tenant, None)

    def forget(self, tenant: TenantId, run: str) -> None:
        with self._lock:
            if self._runs.get(tenant, {}).pop(run, None) is not None:
                self._rules.pop(tenant, None)

    def runs(self, tenant: TenantId) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._runs.get(tenant, ()))

    def count(self, tenant: TenantId, run: str) -> Counter[str]:
        """Return how many values a run has registered under each id."""
        with self._lock:
            return Counter(value_id for value_id, _ in self._runs.get(tenant, {}).get(run, ()))


def exceptions_in(path: Path) -> Mapping[TenantId, Rules]:
    """Return the exceptions in a redaction file by tenant, none if there is no file.

    StartRefused has a sentence for the operator.
    """
    sentence = f"The redaction file {path} cannot be used"
    missing = suppress(FileNotFoundError, NotADirectoryError)
    try:
        with os_errors_as(StartRefused, sentence), missing, opened(path) as descriptor:
            return _exceptions(os.read(descriptor, LONGEST_FILE))
    except ValueError as error:
        shape = '{"TENANT": {"allow": ["TEXT"], "allow_kinds": ["KIND"]}}'
        raise StartRefused(f"{sentence}: it is not JSON such as {shape}.") from error
    except Invalid as fault:
        raise StartRefused(f"{sentence}: {fault}") from fault
    return {}


def _exceptions(document: bytes) -> Mapping[TenantId, Rules]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - few services have such a file

    every: TypeAdapter[Any] = TypeAdapter(
        dict[str, dict[Literal["allow", "allow_kinds"], frozenset[str]]]
    )
    return {
        tenant_id(tenant): Rules(
            allowed=its.get("allow", frozenset()), allowed_kinds=its.get("allow_kinds", frozenset())
        )
        for tenant, its in every.validate_json(document).items()
    }


@dataclass(slots=True)
class Redactor:
    """Removes secrets from the texts of one request, before they are stored."""

    rules: Rules
    kinds: Counter[str] = field(default_factory=Counter)  # the kinds of removed secrets

    @property
    def count(self) -> int:
        return self.kinds.total()

    def whole(self, text: str) -> str:
        """Return the text without secrets; placeholders may make it longer."""
        clean = self.rules.redacted(text)
        if not clean.count:
            return text
        self.kinds.update(clean.kinds)
        return clean.text

    def text(self, text: str, most: int) -> str:
        """Return the text without secrets, cut to `most` characters."""
        clean = self.whole(text)
        return text if clean is text else clean[:most]

    def text_of_bytes(self, text: str, most: int) -> str:
        """Return the text without secrets, cut to `most` bytes of UTF-8."""
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
        """Return the session with its summary redacted; a generated summary keeps its form."""
        clean = self.text(session.summary, MAX_SUMMARY)
        if clean != session.summary:  # redact its two messages, and use that if it is enough
            digest = Redactor(self.rules).transcript(parsed_summary(session.summary))
            rebuilt = summary(digest)
            clean = clean if self.rules.redacted(rebuilt).count else rebuilt or clean
        return replace(session, summary=clean)

    def transcript(self, digest: Transcript) -> Transcript:
        first = cut(self.whole(digest.first), LONGEST_MESSAGE)
        last = cut(self.whole(digest.last), LONGEST_MESSAGE) if digest.user > 1 else first
        return replace(digest, first=first, last=last)

    def records(self, records: Sequence[Session | Memory]) -> Iterator[Session | Memory]:
        """Yield the records without secrets; most have none, so BATCH are checked at once."""
        for start in range(0, len(records), BATCH):
            some = records[start : start + BATCH]
            are_clean = self.are_clean(chain.from_iterable(map(_texts_of, some)))
            yield from some if are_clean else map(self.record, some)

    def record(self, record: Session | Memory) -> Session | Memory:
        return self.session(record) if isinstance(record, Session) else self.memory(record)

    def memory(self, memory: Memory) -> Memory:
        promoted_to = memory.promoted_to and self.text(memory.promoted_to, MAX_TITLE)
        return replace(memory, **self._clean(memory), promoted_to=promoted_to)

    def are_clean(self, texts: Iterable[str | None]) -> bool:
        """Whether no text has a secret, checked in one pass over the joined texts.

        No pattern matches across the separator, which counts as the end of a line. False only
        means that each text must be checked alone: the joined text may match where no single text
        does, and the end of a line distinguishes a private key's headers from its remains.
        """
        joined = SEPARATOR.join(filter(None, texts))
        return "PRIVATE KEY" not in joined and not self.rules.redacted(joined).count

    def _clean(self, record: Draft | Memory) -> dict[str, Any]:
        return {
            "session": record.session and self.session_id(record.session),
            "space": replace(record.space, scope=self.text(record.space.scope, MAX_SCOPE)),
            "text": self.words(record.text),
            "key": None if record.key is None else self.text(record.key, MAX_KEY),
        }

    def _tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.text(tag, MAX_TAG) for tag in tags)


async def aside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run work on texts of this size, in a thread unless the texts are short."""
    if size < INLINE_LIMIT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _texts_of(record: Session | Memory | Draft) -> tuple[str | None, ...]:
    if isinstance(record, Session):
        return record.id, record.summary
    text, promoted_to = record.text, record.promoted_to if isinstance(record, Memory) else None
    return (
        record.session, record.space.scope, text.type, text.title, text.content, *text.tags,
        record.key, promoted_to,
    )  # fmt: skip


WITHHELD = "[REDACTED:labelled-secret]"
"""Replaces a string in which the secret cannot be located."""


@dataclass(frozen=True, slots=True)
class JsonRedactor:
    """Removes secrets from JSON values, including the names of members."""

    redactor: Redactor
    whole: Callable[[str], str]  # returns a text without secrets, and counts in `redactor`

    def document(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return an object without secrets, including those that span several of its strings.

        Examples are a variable next to its name, an option before its argument, a JSON member.
        """
        clean = self._members(value)
        redacted = self.redactor.rules.redacted(as_json(clean))
        if not redacted.count:
            return clean
        try:
            members = json.loads(redacted.text)
        except ValueError:  # the redaction has removed a quote
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
        """Return the redacted members; names that become equal get a number."""
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
            member = self.redactor.rules.redacted(as_json({name: value}))
            self.redactor.kinds.update(member.kinds)
            if member.count:
                try:
                    ((name, clean),) = json.loads(member.text).items()
                except (ValueError, AttributeError):  # the redaction has removed a quote
                    clean = WITHHELD
        return self.whole(name), clean


def is_plain(text: str, value: object, are_clean: Callable[[Sequence[str]], bool]) -> bool:
    """Whether no string of a JSON value has a secret, by its text and all strings at once.

    The text shows names next to their values, if it has no escapes; with escapes, only a
    `JsonRedactor` can tell. Strings are checked on a line each, as some secrets are recognized by
    the start or end of a line.
    """
    return "\\" not in text and are_clean([text, "\n".join(texts(value))])


def texts(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, and every name of a member."""
    return (it for it in leaves(value) if isinstance(it, str))


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def as_json(value: object) -> str:
    """Return compact JSON; ValueError for a number that JSON does not have."""
    return _encoder.encode(value)  # `json.dumps` would make an encoder at each call
