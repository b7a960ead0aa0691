"""Redaction: secrets leave a text before it is stored, indexed, versioned, logged or traced."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

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
BLANK = 8  # repeated characters at the end of a masked value
AT_ONCE = 100  # characters; in a longer text, one search for all hints is slower than one for each


class SecretSpan(NamedTuple):
    """The position of a secret in a text, its kind, and its name, if it has one."""

    start: int
    end: int
    kind: str
    name: str = ""


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

    def _parts(self, text: str) -> Iterator[SecretSpan]:
        yield from _private_parts(text)
        masked = self._masked(text)
        for value_id, value in self.values:
            for start, end in self._occurrences(value, masked):
                yield SecretSpan(start, end, VALUE, self._name(value_id))
        for it in secrets(text):
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
            is_telling = self.has_value_in(name) or any(secrets(name))
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


def _private_parts(text: str) -> Iterator[SecretSpan]:
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
                yield SecretSpan(start, tag.end(), PRIVATE)
    if depth:
        yield SecretSpan(start, len(text), PRIVATE)


def _merged(parts: Iterable[SecretSpan]) -> list[SecretSpan]:
    """Sort the parts and merge overlapping parts, named after the longer."""
    merged: list[SecretSpan] = []
    for part in sorted(parts, key=lambda part: (part.start, -part.end)):
        if merged and part.start < merged[-1].end:
            last = merged[-1]
            longer = max(last, part, key=lambda it: it.end - it.start)
            merged[-1] = longer._replace(start=last.start, end=max(last.end, part.end))
        else:
            merged.append(part)
    return merged


def _without(text: str, parts: list[SecretSpan]) -> str:
    pieces = []
    at = 0
    for part in parts:
        pieces += [text[at : part.start], assignments.MARK, part.name or part.kind, "]"]
        at = part.end
    return "".join([*pieces, text[at:]])


def secrets(text: str) -> Iterator[SecretSpan]:
    """Return the spans of all secrets in linear time; they may overlap."""
    raw = text.encode("latin-1", "replace")
    lowered = raw.lower()
    if len(text) < AT_ONCE and not shapes.HINT.search(lowered):
        return iter(())
    hinted = (
        SecretSpan(*match.span("secret"), kind)
        for hint, kind, pattern in shapes.HINTED
        if hint in lowered
        for match in pattern.finditer(text)
    )
    spans = chain(_tokens(text, raw), _labelled(text, lowered), _private_keys(text), hinted)
    return (span for span in spans if not _is_dummy(text[span.start : span.end]))


def _tokens(text: str, raw: bytes) -> Iterator[SecretSpan]:
    """Yield the tokens in a text; only long runs of token characters are searched.

    `raw` is the text in Latin-1, a byte for each character.
    """
    mask = raw.translate(shapes.RUN_MASK)
    end = 0
    while end >= 0 and (start := mask.find(shapes.LONG_RUN, end)) >= 0:
        end = mask.find(b" ", start)
        run = start, end if end >= 0 else len(mask)
        pattern, kinds = shapes.token_pattern()
        for token in pattern.finditer(text, *run):
            yield SecretSpan(token.start(), token.end(), kinds[(token.lastindex or 0) - 1])
        if text.find("eyJ", *run) >= 0:
            for token in shapes.JWT.finditer(text, *run):
                yield SecretSpan(*token.span("secret"), "jwt")
        if text.find("AZDO", *run) >= 0:
            for token in shapes.AZURE_DEVOPS.finditer(text, *run):
                yield SecretSpan(*token.span(), "azure-key")


def _labelled(text: str, lowered: bytes) -> Iterator[SecretSpan]:
    """Yield labelled secrets; each label is tried only where its keyword occurs.

    `lowered` is the lower-case text in Latin-1, a byte for each character.
    """
    for word, labels in shapes.LABELS.items():
        at = lowered.find(word)
        while at >= 0:
            next_at = at + 1
            for label in labels:
                match = label.pattern.match(text, at)
                if not match:
                    continue
                start, end = match.span("secret")
                if label.holds(match):
                    yield SecretSpan(start, end, label.kind)
                    next_at = max(next_at, end)
                elif label is shapes.PASSWORD and end - start > assignments.LONGEST:
                    # Otherwise this would take quadratic time.
                    next_at = max(next_at, end)
            at = lowered.find(word, next_at)


def _private_keys(text: str) -> Iterator[SecretSpan]:
    """Yield armored private keys, up to their END line or, without one, the end of the armor."""
    if "PRIVATE KEY" not in text:
        return
    for begin in shapes.KEY_BEGIN.finditer(text):
        dashes = text.find("-----", begin.end())
        end = shapes.KEY_END.match(text, dashes) if dashes >= 0 else None
        if end and shapes.KEY_LINE.search(text, begin.end(), dashes):
            yield SecretSpan(begin.start(), end.end(), "private-key")
        elif not end and (armor := shapes.KEY_ARMOR.match(text, begin.end())):
            yield SecretSpan(begin.start(), armor.end(), "private-key")


def _is_dummy(secret: str) -> bool:
    """Whether the value is a variable or a dummy, or at most a prefix followed by a mask."""
    end = secret[-BLANK:]
    is_mask = len(end) == BLANK and end[0] in "xX*.0" and end == end[0] * BLANK
    if is_mask and assignments.alternations(secret.rstrip(end[0])) <= assignments.MIN_ALTERNATIONS:
        return True
    return shapes.DUMMY_VALUE.fullmatch(secret) is not None


TEXTS = 16  # redacted texts that are cached for one request

_hidden: ContextVar[Callable[[str], str]] = ContextVar(
    "takes secrets out of what leaves", default=lambda text: DEFAULT_RULES.redacted(text).text
)


def hide_by(rules: Callable[[], Rules]) -> None:
    """Redact the current request's logs and spans by these rules from now on.

    The rules are fetched once, if a text may contain a secret. Repeated texts, such as a prompt
    or a type in spans, are redacted once.
    """
    known: dict[str, str] = {}
    redacted: Callable[[str], Redacted] | None = None

    def clean(text: str) -> str:
        nonlocal redacted
        if (safe := known.get(text)) is None:
            redacted = redacted or rules().redacted
            safe = redacted(text).text
            if len(known) < TEXTS:
                known[text] = safe
        return safe

    _hidden.set(clean)


def hide_too(rewritten: Callable[[str], str]) -> None:
    """Also rewrite the current request's texts in logs and spans, after their redaction."""
    before = _hidden.get()
    _hidden.set(lambda text: rewritten(before(text)))


def hidden(text: str) -> str:
    return text if len(text) < SHORTEST_VALUE else _hidden.get()(text)
