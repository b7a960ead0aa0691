"""Redaction: secrets leave a text before it is stored, indexed, versioned, logged or traced."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import NamedTuple

from ..errors import Invalid, OverQuota
from .shapes import SHAPES, secrets

PRIVATE, VALUE = "private", "value"
KINDS: Mapping[str, str] = {
    PRIVATE: "what stands between private tags, or after one that is left open",
    VALUE: "a registered value; its placeholder has its id",
    **SHAPES,
}
"""Every kind of redaction, with its description."""

MARK = "[REDACTED:"
SHORTEST_VALUE, LONGEST_VALUE = 8, 8192  # characters; a shorter one occurs in words
LONGEST_ID, LONGEST_NAME = 256, 64  # characters; the name is the id in a placeholder
MOST_VALUES = 256  # of a run
MOST_RUNS = 1000  # of a tenant
ROUNDS = 4  # a redaction may uncover one more secret; the rest is margin

_PLACEHOLDER = re.compile(re.escape(MARK) + r"([A-Za-z0-9._-]+)\]")
_UNSAFE = re.compile("[^A-Za-z0-9._-]+")
# Also as JSON writes the signs when it escapes them.
_TAG = re.compile(r"(?:<|\\u003c)\s*+((?:\\?/)?)\s*+private\s*+(?:>|\\u003e)", re.IGNORECASE)
_TYPE = re.compile("<Private>(?<=[A-Za-z0-9_]<Private>)")  # as in Local<Private>
_VEIL = "\ud800"  # in no text that is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """A redacted text, with the number of redactions, in all and of each kind."""

    text: str
    count: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is redacted: private parts, registered values and the shapes of secrets.

    `values` are pairs of (id, value); an id may have several. `allowed` texts and
    `allowed_kinds` are exempt from redaction by shape, but not by value or private tag.
    Raises Invalid for a value that may not be registered and for an unknown kind.
    """

    values: tuple[tuple[str, str], ...] = ()
    allowed: frozenset[str] = frozenset()
    allowed_kinds: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for _, value in self.values:
            _check(value)
        if unknown := self.allowed_kinds - SHAPES.keys():
            raise Invalid(f"{', '.join(sorted(unknown))}: no such kind of secret to allow.")

    def redacted(self, text: str) -> Redacted:
        """The text with a placeholder, `[REDACTED:<kind or id>]`, for each secret.

        Overlapping secrets are one, named after the longest. Idempotent; takes linear time.
        """
        if len(text) < SHORTEST_VALUE:  # nor is any shape so short
            return Redacted(text=text)
        kinds: Counter[str] = Counter()
        for _ in range(ROUNDS):
            found = _merged(self._found(text))
            if not found:
                break
            kinds.update(part.kind for part in found)
            text = _without(text, found)
        return Redacted(text=text, count=kinds.total(), kinds=dict(kinds))

    def _found(self, text: str) -> Iterator["_Part"]:
        yield from _private_parts(text)
        veiled = self._veiled(text)
        for value_id, value in self.values:
            for start, end in self._occurrences(value, veiled):
                yield _Part(start, end, VALUE, self._name(value_id))
        for start, end, kind in secrets(text):
            if kind not in self.allowed_kinds and text[start:end] not in self.allowed:
                yield _Part(start, end, kind, kind)

    def _veiled(self, text: str) -> str:
        """The text with our own placeholders masked, so that no value matches in or across one."""
        if not self.values or MARK not in text:
            return text
        return _PLACEHOLDER.sub(lambda m: _VEIL * len(m[0]) if self._is_ours(m[1]) else m[0], text)

    def _is_ours(self, name: str) -> bool:
        return name in KINDS or (name in self._candidates and self._name(name) == name)

    def _name(self, value_id: str) -> str:
        """The name of an id in a placeholder; a generic one if the id contains a secret."""
        if value_id not in self._names:
            name = _safe(value_id)
            is_telling = any(value in name for _, value in self.values) or any(secrets(name))
            self._names[value_id] = VALUE if is_telling else name
        return self._names[value_id]

    def _occurrences(self, value: str, text: str) -> Iterator[tuple[int, int]]:
        """The spans of a value; overlapping ones are merged."""
        start = end = 0
        at = text.find(value)
        while at >= 0:
            if at >= end:
                if end:
                    yield start, end
                start = at
            end = at + len(value)
            step = self._step(value)
            while step < len(value) and text.startswith(value[-step:], end):
                end += step
            at = text.find(value, end - len(value) + 1)
        if end:
            yield start, end

    def _step(self, value: str) -> int:
        if value not in self._steps:
            self._steps[value] = _period(value)
        return self._steps[value]

    @cached_property
    def _candidates(self) -> frozenset[str]:
        """The names of the ids, as far as these contain no secret."""
        return frozenset(_safe(value_id) for value_id, _ in self.values)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Cached names: to compute one, all values are searched."""
        return {}

    @cached_property
    def _steps(self) -> dict[str, int]:
        """Cached periods of the values that were found."""
        return {}


DEFAULT_RULES = Rules()


def redacted(text: str, rules: Rules = DEFAULT_RULES) -> Redacted:
    """The text redacted by the rules."""
    return rules.redacted(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an agent, by its tenant's name for it."""

    tenant: str
    run: str


class Registry:
    """The values registered for runs, in memory only. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tenants: dict[str, dict[Run, dict[tuple[str, str], None]]] = {}
        self._all: dict[str, tuple[tuple[str, str], ...]] = {}

    def register(self, run: Run, value_id: str, value: str) -> None:
        """Register a value for redaction from now on; idempotent.

        Invalid for a value that is too short, too long or contains a placeholder; OverQuota
        when the run has too many values or the tenant too many runs.
        """
        _check(value)
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

    def forget(self, run: Run) -> None:
        """Drop the values of a run, if it has any."""
        with self._lock:
            runs = self._tenants.get(run.tenant, {})
            runs.pop(run, None)
            if not runs:
                self._tenants.pop(run.tenant, None)
            self._all.pop(run.tenant, None)

    def values(self, run: Run) -> tuple[tuple[str, str], ...]:
        """The (id, value) pairs of a run, in order of registration."""
        with self._lock:
            return tuple(self._tenants.get(run.tenant, {}).get(run, ()))

    def all_of(self, tenant: str) -> tuple[tuple[str, str], ...]:
        """The distinct (id, value) pairs of a tenant's runs; the same tuple until one changes."""
        with self._lock:
            if tenant not in self._tenants:
                return ()
            if tenant not in self._all:
                runs = self._tenants[tenant].values()
                self._all[tenant] = tuple(dict.fromkeys(chain.from_iterable(runs)))
            return self._all[tenant]


class _Part(NamedTuple):
    """A span to redact, its kind, and the name in its placeholder."""

    start: int
    end: int
    kind: str
    name: str

    def joined(self, other: "_Part") -> "_Part":
        """The union of both, named after the longer."""
        longer = max(self, other, key=lambda part: part.end - part.start)
        return longer._replace(start=self.start, end=max(self.end, other.end))


def _check(value: str) -> None:
    if len(value.strip()) < SHORTEST_VALUE:
        raise Invalid(f"A registered value has at least {SHORTEST_VALUE} characters.")
    if len(value) > LONGEST_VALUE:
        raise Invalid(f"A registered value has at most {LONGEST_VALUE:,} characters.")
    if MARK in value:
        raise Invalid(f"A registered value does not hold {MARK}, which stands for a secret.")


def _safe(value_id: str) -> str:
    return _UNSAFE.sub("-", value_id)[:LONGEST_NAME] or VALUE


def _private_parts(text: str) -> Iterator[_Part]:
    """The spans between matching private tags; an unclosed one reaches to the end.

    A type parameter such as `Local<Private>` is not a tag if nothing closes it.
    """
    depth = start = 0
    last_closing = _last_closing(text) if _TYPE.search(text) else len(text)
    for tag in _TAG.finditer(text):
        if tag.start() > last_closing and _TYPE.match(text, tag.start()):
            continue
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield _Part(start, tag.end(), PRIVATE, PRIVATE)
    if depth:
        yield _Part(start, len(text), PRIVATE, PRIVATE)


def _last_closing(text: str) -> int:
    return max((tag.start() for tag in _TAG.finditer(text) if tag[1]), default=-1)


def _period(value: str) -> int:
    """The period of a string, the least shift under which it matches itself: 2 for "ababa"."""
    borders = [0]  # of each prefix: the longest proper one that is also its suffix (KMP)
    border = 0
    for sign in value[1:]:
        while border and sign != value[border]:
            border = borders[border - 1]
        border += sign == value[border]
        borders.append(border)
    return len(value) - border


def _merged(parts: Iterable[_Part]) -> list[_Part]:
    """The parts in order, overlapping ones joined."""
    merged: list[_Part] = []
    for part in sorted(parts, key=lambda part: (part.start, -part.end)):
        if merged and part.start < merged[-1].end:
            merged[-1] = merged[-1].joined(part)
        else:
            merged.append(part)
    return merged


def _without(text: str, parts: list[_Part]) -> str:
    pieces = []
    at = 0
    for part in parts:
        pieces += [text[at : part.start], MARK, part.name, "]"]
        at = part.end
    return "".join([*pieces, text[at:]])
