"""Redaction: secrets leave a text before it is stored, indexed, versioned, logged or traced."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import Invalid
from ..light import Lazy, dataclass, field

if TYPE_CHECKING:
    from . import assignments, shapes
else:  # only commands that store or show more than plain names need their many patterns
    assignments, shapes = Lazy(__package__, ".assignments"), Lazy(__package__, ".shapes")

PRIVATE, VALUE = "private", "value"  # the kinds that are not recognized by their shape

SHORTEST_VALUE, LONGEST_VALUE = 8, 8192  # characters; a shorter value occurs within words
LONGEST_NAME = 64  # characters of an id in a placeholder
SHORT, MOST_CLEAN = 128, 4096  # most characters of a text that is cached, and most cached texts
ROUNDS = 4  # a redaction may uncover one more secret; the other rounds are margin

# Such a name is too short for a token; between a label and its value stands another character.
_PLAIN_NAME = re.compile("[A-Za-z0-9._-]{1,19}")
_UNSAFE = re.compile("[^A-Za-z0-9._-]+")
# A private tag; JSON may escape its characters.
_TAG = re.compile(r"(?:<|\\u003c)\s*+((?:\\?/)?)\s*+private\s*+(?:>|\\u003e)", re.IGNORECASE)
_TYPE = re.compile("<Private>(?<=[A-Za-z0-9_]<Private>)")  # as in Local<Private>
_MASK = "\ud800"  # a lone surrogate, which no stored text contains


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """A redacted text, with the number of redactions in total and of each kind."""

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
    # Hashes of short texts without secrets, which requests repeat; a hash keeps no erased text.
    _clean: set[int] = field(default_factory=set, init=False, repr=False, compare=False)
    # Names of ids in placeholders; to find a name, all values are searched.
    _names: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for _, value in self.values:
            require_registrable(value)
        if self.allowed_kinds and (unknown := self.allowed_kinds - shapes.KINDS):
            raise Invalid(f"{', '.join(sorted(unknown))}: there is no such kind of secret.")

    def redacted(self, text: str) -> Redacted:
        """Replace each secret by a placeholder, `[REDACTED:<kind or id>]`.

        Overlapping secrets become one, named after the longest. Idempotent, in linear time.
        """
        if len(text) < SHORTEST_VALUE or (not self.values and _PLAIN_NAME.fullmatch(text)):
            return Redacted(text=text)
        if hash(text) in self._clean:
            return Redacted(text=text)
        parts = _merged(self._parts(text))
        if not parts:
            if len(text) <= SHORT:
                if len(self._clean) >= MOST_CLEAN:
                    self._clean.clear()
                self._clean.add(hash(text))
            return Redacted(text=text)
        kinds: Counter[str] = Counter()
        clean = text
        for _ in range(ROUNDS):
            kinds.update(part.kind for part in parts)
            clean = _without(clean, parts)
            if not (parts := _merged(self._parts(clean))):
                break
        return Redacted(text=clean, count=kinds.total(), kinds=dict(kinds))

    def has_value_in(self, text: str) -> bool:
        """Whether the text contains a registered value."""
        return any(value in text for _, value in self.values)

    def _parts(self, text: str) -> Iterator["shapes.SecretSpan"]:
        yield from _private_parts(text)
        masked = self._masked(text)
        for value_id, value in self.values:
            for start, end in self._occurrences(value, masked):
                yield shapes.SecretSpan(start, end, VALUE, self._name(value_id))
        for it in shapes.secrets(text):
            if it.kind not in self.allowed_kinds and text[it.start : it.end] not in self.allowed:
                yield it

    def _masked(self, text: str) -> str:
        """Mask our own placeholders, so that no value matches within or across a placeholder."""
        if not self.values or assignments.MARK not in text:
            return text

        def masked(placeholder: re.Match[str]) -> str:
            name = placeholder[0][len(assignments.MARK) : -1]
            is_kind = name in shapes.KINDS or name in (PRIVATE, VALUE)
            is_ours = is_kind or (name in self._candidates and self._name(name) == name)
            return _MASK * len(placeholder[0]) if is_ours else placeholder[0]

        return re.sub(assignments.PLACEHOLDER, masked, text)

    def _name(self, value_id: str) -> str:
        """Return the name of an id in a placeholder, or a generic name if the id has a secret."""
        if value_id not in self._names:
            name = _safe(value_id)
            is_telling = self.has_value_in(name) or any(shapes.secrets(name))
            self._names[value_id] = VALUE if is_telling else name
        return self._names[value_id]

    def _occurrences(self, value: str, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of a value; overlapping spans are merged."""
        start = end = step = 0
        at = text.find(value)
        while at >= 0:
            if at >= end:
                if end:
                    yield start, end
                start = at
            end = at + len(value)
            if not step:  # the smallest shift at which the value overlaps itself: 2 for "ababa"
                shifts = range(1, len(value) + 1)
                step = next(it for it in shifts if value.startswith(value[it:]))
            while step < len(value) and text.startswith(value[-step:], end):
                end += step
            at = text.find(value, end - len(value) + 1)
        if end:
            yield start, end

    @cached_property
    def _candidates(self) -> frozenset[str]:
        """The possible names of the ids in placeholders."""
        return frozenset(_safe(value_id) for value_id, _ in self.values)


DEFAULT_RULES = Rules()


def redacted(text: str, rules: Rules = DEFAULT_RULES) -> Redacted:
    return rules.redacted(text)


def require_registrable(value: str) -> None:
    """Raise Invalid for a value that may not be registered: too short, too long, or marked."""
    if len(value.strip()) < SHORTEST_VALUE:
        raise Invalid(f"A registered value must have at least {SHORTEST_VALUE} characters.")
    if len(value) > LONGEST_VALUE:
        raise Invalid(f"A registered value must have at most {LONGEST_VALUE:,} characters.")
    if (mark := assignments.MARK) in value:
        raise Invalid(f"A registered value must not contain {mark}, which stands for a secret.")


def _safe(value_id: str) -> str:
    return _UNSAFE.sub("-", value_id)[:LONGEST_NAME] or VALUE


def _private_parts(text: str) -> Iterator["shapes.SecretSpan"]:
    """Yield the spans between matching private tags; an unclosed span reaches to the end.

    A type parameter such as `Local<Private>` is not a tag if nothing closes it.
    """
    if "<" not in text and "\\" not in text:  # every tag begins with one of these
        return
    depth = start = 0
    last_closing = len(text)
    if _TYPE.search(text):
        last_closing = max((tag.start() for tag in _TAG.finditer(text) if tag[1]), default=-1)
    for tag in _TAG.finditer(text):
        if tag.start() > last_closing and _TYPE.match(text, tag.start()):
            continue
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield shapes.SecretSpan(start, tag.end(), PRIVATE)
    if depth:
        yield shapes.SecretSpan(start, len(text), PRIVATE)


def _merged(parts: Iterable["shapes.SecretSpan"]) -> list["shapes.SecretSpan"]:
    """Sort the parts and merge overlapping parts, named after the longer."""
    merged: list[shapes.SecretSpan] = []
    for part in sorted(parts, key=lambda part: (part.start, -part.end)):
        if merged and part.start < merged[-1].end:
            last = merged[-1]
            longer = max(last, part, key=lambda it: it.end - it.start)
            merged[-1] = longer._replace(start=last.start, end=max(last.end, part.end))
        else:
            merged.append(part)
    return merged


def _without(text: str, parts: list["shapes.SecretSpan"]) -> str:
    pieces = []
    at = 0
    for part in parts:
        pieces += [text[at : part.start], assignments.MARK, part.name or part.kind, "]"]
        at = part.end
    return "".join([*pieces, text[at:]])
