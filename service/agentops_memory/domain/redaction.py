"""Secrets leave a text before it is stored, indexed, versioned or announced."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import NamedTuple

from .errors import Invalid, OverQuota
from .secret_shapes import SHAPES, secrets

PRIVATE, VALUE = "private", "value"
KINDS: Mapping[str, str] = {
    PRIVATE: "what stands between private tags, or after one that is left open",
    VALUE: "a registered value; its placeholder has its id",
    **SHAPES,
}
"""Every kind of thing that is taken out, and what it is."""

MARK = "[REDACTED:"
SHORTEST_VALUE, LONGEST_VALUE = 8, 8192  # characters; a shorter one is found in other words
LONGEST_ID, LONGEST_NAME = 256, 64  # characters; the name is what a placeholder has of the id
MOST_VALUES = 256  # of a run
MOST_RUNS = 1000  # of a tenant
ROUNDS = 4  # taking one out may uncover another, once; the rest is margin

_PLACEHOLDER = re.compile(re.escape(MARK) + r"([A-Za-z0-9._-]+)\]")
_UNSAFE = re.compile("[^A-Za-z0-9._-]+")
# Also as JSON writes the signs when it escapes them.
_TAG = re.compile(r"(?:<|\\u003c)\s*+((?:\\?/)?)\s*+private\s*+(?:>|\\u003e)", re.IGNORECASE)
_VEIL = "\ud800"  # in no text that is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """A text without its secrets, how many were taken out, and how many of each kind."""

    text: str
    count: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is taken out of a text: private parts, registered values and well-known shapes.

    A value is (id, value); an id may have several. What is in `allowed`, or of a kind in
    `allowed_kinds`, stays although it has the shape of a secret; values and private
    parts never stay. Invalid for a value that may not be registered, and for a kind
    that is no shape.
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
        """The text with a placeholder, `[REDACTED:<kind or id>]`, for everything taken out.

        What overlaps is taken out as one, under the name of the longest. Nothing is
        found in the result again. The time is linear in the text.
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
            for start, end in _occurrences(value, veiled):
                yield _Part(start, end, VALUE, self._names[value_id])
        for start, end, kind in secrets(text):
            if kind not in self.allowed_kinds and text[start:end] not in self.allowed:
                yield _Part(start, end, kind, kind)

    def _veiled(self, text: str) -> str:
        """The text without our own placeholders: no value is found in one, or across its edge."""
        if not self.values or MARK not in text:
            return text
        ours = {*KINDS, *self._names.values()}
        return _PLACEHOLDER.sub(lambda m: _VEIL * len(m[0]) if m[1] in ours else m[0], text)

    @cached_property
    def _names(self) -> dict[str, str]:
        """The name of each id in a placeholder. One that holds a secret itself has another."""
        names = {each: _UNSAFE.sub("-", each)[:LONGEST_NAME] or VALUE for each, _ in self.values}
        page = "\n".join(names.values())
        values = [value for _, value in self.values if value in page]
        for value_id, name in names.items():
            if any(value in name for value in values) or any(secrets(name)):
                names[value_id] = VALUE
        return names


DEFAULT_RULES = Rules()


def redacted(text: str, rules: Rules = DEFAULT_RULES) -> Redacted:
    """The text without what the rules take out."""
    return rules.redacted(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an agent, by the name that its tenant has for it."""

    tenant: str
    run: str


class Registry:
    """The values registered for runs, in memory only. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tenants: dict[str, dict[Run, dict[tuple[str, str], None]]] = {}
        self._all: dict[str, tuple[tuple[str, str], ...]] = {}

    def register(self, run: Run, value_id: str, value: str) -> None:
        """Take the value out of what this run writes, from now on. The same again is fine.

        Invalid for a value that is too short, too long or holds a placeholder; OverQuota
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
        """Drop the values of a run; one without any is fine."""
        with self._lock:
            runs = self._tenants.get(run.tenant, {})
            runs.pop(run, None)
            if not runs:
                self._tenants.pop(run.tenant, None)
            self._all.pop(run.tenant, None)

    def values(self, run: Run) -> tuple[tuple[str, str], ...]:
        """The values of a run with their ids, in the order of their registration."""
        with self._lock:
            return tuple(self._tenants.get(run.tenant, {}).get(run, ()))

    def all_of(self, tenant: str) -> tuple[tuple[str, str], ...]:
        """The values of all runs of a tenant, each once; the same tuple until one changes."""
        with self._lock:
            if tenant not in self._tenants:
                return ()
            if tenant not in self._all:
                runs = self._tenants[tenant].values()
                self._all[tenant] = tuple(dict.fromkeys(chain.from_iterable(runs)))
            return self._all[tenant]


class _Part(NamedTuple):
    """A part of a text that is to go, its kind, and the name in its placeholder."""

    start: int
    end: int
    kind: str
    name: str

    def joined(self, other: "_Part") -> "_Part":
        """Both as one, under the name of the longer."""
        longer = max(self, other, key=lambda part: part.end - part.start)
        return longer._replace(start=self.start, end=max(self.end, other.end))


def _check(value: str) -> None:
    if len(value.strip()) < SHORTEST_VALUE:
        raise Invalid(f"A registered value has at least {SHORTEST_VALUE} characters.")
    if len(value) > LONGEST_VALUE:
        raise Invalid(f"A registered value has at most {LONGEST_VALUE:,} characters.")
    if MARK in value:
        raise Invalid(f"A registered value does not hold {MARK}, which stands for a secret.")


def _private_parts(text: str) -> Iterator[_Part]:
    """From each opening tag to the closing tag that matches it, else to the end."""
    depth = start = 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield _Part(start, tag.end(), PRIVATE, PRIVATE)
    if depth:
        yield _Part(start, len(text), PRIVATE, PRIVATE)


def _occurrences(value: str, text: str) -> Iterator[tuple[int, int]]:
    """Where the value stands; occurrences that overlap are one."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        following = text.find(value, start + 1)
        while 0 <= following < end:
            end = following + len(value)
            following = text.find(value, following + 1)
        yield start, end
        start = following


def _merged(parts: Iterable[_Part]) -> list[_Part]:
    """The parts in their order; those that overlap are one."""
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
