"""Text normalized for storage, comparison, truncation and the index; stored JSON. All pure."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import groupby, islice, pairwise
from math import isfinite
from typing import Any, NamedTuple

# Regular forms need no list, as the stemmer merges them. Omitted are forms that are as often
# another word (`left`, `saw`, `ground`, `spoke`, `halves`), a name (`drew`), or a common word of
# another language (`theses`), and `won`, which the tokenizer makes of `won't`.
_VERBS = """
arise arose arisen, awake awoke awoken, beat beaten, become became, begin began begun, bend bent,
blow blew blown, break broke broken, breed bred, bring brought, build built, burn burnt,
buy bought, catch caught, choose chose chosen, cling clung, come came, creep crept, deal dealt,
dig dug, draw drawn, dream dreamt, drink drank drunk, drive drove driven, eat ate eaten,
feed fed, fight fought, find found, flee fled, fly flew flown, forbid forbade forbidden,
forget forgot forgotten, forgive forgave forgiven, freeze froze frozen, get got gotten,
give gave given, go went gone, grow grew grown, hang hung, hear heard, hold held, keep kept,
kneel knelt, know knew known, lean leant, leap leapt, learn learnt, lend lent, lose lost, make made,
meet met, mistake mistook mistaken, overcome overcame, override overrode overridden,
oversee oversaw overseen, overwrite overwrote overwritten, pay paid, rebuild rebuilt, rerun reran,
 rewrite rewrote rewritten, ride rode ridden, rise risen, run ran,
say said, seek sought, sell sold, send sent, shake shook shaken, shine shone,
show shown, shrink shrank shrunk, sing sang sung, sink sank sunk, sleep slept, slide slid,
speak spoken, spend spent, spill spilt, spin spun, stand stood, steal stole stolen,
stick stuck, sting stung, strike struck, swear swore sworn, sweep swept, swim swam swum,
swing swung, take took taken, teach taught, tear tore torn, tell told, think thought thoughts,
throw threw thrown, undergo underwent undergone, understand understood, undertake undertook
undertaken, undo undid undone, wake woke woken, wear wore worn, weave wove woven, weep wept,
withdraw withdrew withdrawn, withhold withheld, write wrote written
"""
_NOUNS = """
child children, man men, woman women, person people peoples, foot feet, tooth teeth, goose geese,
mouse mice, wife wives, knife knives,
wolf wolves, thief thieves, loaf loaves,
index indices, matrix matrices, vertex vertices, appendix appendices
"""

BASE_FORMS = {
    form: base
    for base, *forms in map(str.split, f"{_VERBS.strip()},{_NOUNS.strip()}".split(","))
    for form in forms
}
"""The base form of each irregular form, both in lower case."""
WITH_FORMS = frozenset(BASE_FORMS.values())


def base_form(word: str) -> str:
    """Return the base form of a case-folded word, ignoring accents, or the word itself."""
    plain = word if word.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFD", word))
    return BASE_FORMS.get(plain, word)


_ACCENTS = re.compile("[\u0300-\u036f]")


REPLACEMENT = "\ufffd"
INDEX_FORMAT = 3  # version of the result of `indexed`
CACHED, MAX_CACHED = 4096, 64  # most cached expansions of identifiers, and the length of each

NEIGHBORS = 2  # preceding memories of the same session, project and scope to borrow from
LONGEST = 80  # most words of a memory that borrows
BORROWED = 30  # words borrowed from the end of each neighbor
REACH = 1200  # characters at a neighbor's end that are searched for these words

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """Return the text as it may be stored, with U+FFFD for NUL and lone surrogates."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub(REPLACEMENT, text)


def sha256_of(content: str) -> str:
    """Return the SHA-256 of the content in UTF-8, in lower-case hexadecimal."""
    return hashlib.sha256(content.encode()).hexdigest()


def content_hash(content: str) -> str:
    """Return the hexadecimal SHA-256 of the lower-cased content with collapsed white space."""
    return hashlib.sha256(" ".join(content.lower().split()).encode()).hexdigest()


_quoted = json.encoder.encode_basestring_ascii


def fingerprint(key: str | None, type_: str, title: str, content_hash: str) -> int:
    """Return a signed 64-bit hash of key, type, title and content hash, equal for duplicates."""
    parts = ("null" if key is None else _quoted(key), *map(_quoted, (type_, title, content_hash)))
    encoded = f"[{', '.join(parts)}]".encode()  # equals json.dumps, but faster
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), signed=True)


def cut(text: str, limit: int) -> str:
    """Truncate a text to `limit` code points, followed by three dots if it was longer."""
    return text if len(text) <= limit else text[:limit] + "..."


def indexed(text: str) -> str:
    """Prepare a text for the tokenizer of the full-text index.

    Words are unified and case-folded, an irregular form becomes its base form, a run of an
    unspaced script becomes bigrams and its last character, and an identifier is followed by
    its parts and its joined forms. A change to the result requires a new `INDEX_FORMAT`, which
    rebuilds the index: FTS5 deletes an entry by the text that was inserted.
    """
    if not text.isascii():
        text = _unspaced_run().sub(_paired, unified(text))
    return _in_base_forms(_IDENTIFIER.sub(_with_parts, text).casefold())


def borrows(content: str) -> bool:
    """Whether a memory with this content is short enough to be indexed with context."""
    if content.isascii():
        return len(content.split(None, LONGEST)) <= LONGEST
    return next(islice(words(content), LONGEST, None), None) is None


def unified(text: str) -> str:
    """Return the text in NFKC; in non-ASCII text, also drop silent marks and replace symbols."""
    if text.isascii():
        return text
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", _PILE.sub(r"\1", text))
    return text.translate(_UNIFIED)


def spaced(text: str) -> str:
    """Return the unified text with spaces around each run of an unspaced script."""
    text = unified(text)
    return text if text.isascii() else _unspaced_run().sub(r" \g<0> ", text)


def pairs(run: str) -> list[str]:
    """Return the character bigrams of a run of an unspaced script, or its single character."""
    return ["".join(pair) for pair in pairwise(run)] or [run]


@cache
def piece_pattern() -> re.Pattern[str]:
    """Return the pattern of pieces in spaced text; the matched group's name is the kind."""
    return re.compile(
        rf"(?P<run>[{_UNSPACED}]+)|(?P<identifier>{_IDENTIFIER.pattern})|(?P<word>{_WORD}+)"
    )


def words(text: str) -> Iterator[re.Match[str]]:
    return _counted().finditer(text)


def parts(identifier: str) -> list[str]:
    """Return the words in an identifier such as `a/b.c`, `max_connections` or `HTTPServer`."""
    return [
        part
        for word in _CONNECTOR.split(_VERSION.sub("", identifier))
        for part in _HUMP.split(word)
        if part
    ]


def joined_forms(identifier: str) -> list[str]:
    """Return the identifier and each compound name in it, without their connectors."""
    if identifier.isidentifier():  # the most frequent case: its only connector is `_`
        return [identifier.replace("_", "")]
    if "v" in identifier or "V" in identifier:
        identifier = _VERSION.sub("", identifier)
    names = [identifier]
    if "_" in identifier or "-" in identifier:
        names += [name for name in _PATH_CONNECTOR.split(identifier) if "_" in name or "-" in name]
    return ["".join(_CONNECTOR.split(name)) for name in dict.fromkeys(names)]


def end_of(content: str) -> str:
    """Return the end of a content, which the next memories of its session borrow."""
    reached = content[-REACH:]
    skipped = 1 if len(content) > REACH else 0  # the first word may be cut off
    if reached.isascii():
        return " ".join(reached.split()[skipped:][-BORROWED:])
    starts = [word.start() for word in words(reached)][skipped:][-BORROWED:]
    return reached[starts[0] :] if starts else ""


# Scripts without spaces between words: Chinese, Japanese, Thai, Lao, Burmese and Khmer; and
# Korean, where particles are attached to words.
_UNSPACED = (
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
)
# In unified text, all non-ASCII characters belong to words. A set of ASCII symbols compiles in
# 4 ms of every start; the set of all other characters takes 20 ms.
_SYMBOL = r"\x00-/:-@\[-`{-\x7f"
_WORD = f"[^{_SYMBOL}]"

_TOKEN = re.compile(f"{_WORD}+")
_PIECE = re.compile(f"{_WORD}+|[{_SYMBOL}]+")
_SEPARATED = {point: " " for point in range(128) if not _TOKEN.match(chr(point))}
_ACCENTED = re.compile("[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff]")  # Latin letters, or marks
_CONNECTOR = re.compile(r"[-_./:@\\]")
_PATH_CONNECTOR = re.compile(r"[./:@\\]")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_VERSION = re.compile(rf"(?<!{_WORD})[vV](?=[0-9]+\.[0-9])")

# Possessive quantifiers read each word once, so hostile text costs no more than prose.
_IDENTIFIER = re.compile(
    rf"(?<!{_WORD})(?:"
    rf"{_WORD}++(?>(?:[-_./:@\\]{_WORD}++)+)"
    rf"|[A-Z]*+[a-z0-9]++[A-Z]{_WORD}*+"
    rf"|[A-Z]{{2,}}+[a-z]{{2,}}+{_WORD}*+"
    rf")"
)


# Compiled on first use, as compiling both would delay every command by 8 ms.
@cache
def _unspaced_run() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]+")


@cache
def _counted() -> re.Pattern[str]:
    return re.compile(rf"[{_UNSPACED}]{{1,2}}|[^\s{_UNSPACED}]+")


# Normalization sorts successive marks in quadratic time, and no word has more than 30.
_PILE = re.compile(r"([\W\uff9e\uff9f]{30})[\W\uff9e\uff9f]+")

# Soft hyphen, grapheme joiner, Hebrew and Arabic vowel points, tatweel, variation selectors.
_SILENT = re.compile(
    "[\u00ad\u034f\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0640\u064b-\u0652\u0670"
    "\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_LETTERS_AND_NUMBERS, _MARKS = ("L", "N"), ("Mn", "Mc", "Co")
_MAX_UNIFIED = 16_384  # most cached characters


class _Unified(dict[int, str]):
    """A cached table for `str.translate`, which maps to the character, a space, or nothing."""

    def __missing__(self, point: int) -> str:
        unified = _unified_character(chr(point))
        if len(self) < _MAX_UNIFIED:
            self[point] = unified
        return unified


def _unified_character(character: str) -> str:
    if _SILENT.match(character):
        return ""
    category = unicodedata.category(character)
    in_words = category.startswith(_LETTERS_AND_NUMBERS) or category in _MARKS
    return character if in_words else " "


_UNIFIED = _Unified({point: chr(point) for point in range(128)})


def _in_base_forms(text: str) -> str:
    if text.isascii():
        if BASE_FORMS.keys().isdisjoint(text.translate(_SEPARATED).split()):
            return text
        return "".join([BASE_FORMS.get(piece, piece) for piece in _PIECE.findall(text)])
    is_accented = _ACCENTED.search(text)
    if not is_accented and BASE_FORMS.keys().isdisjoint(_TOKEN.findall(text)):
        return text
    return _TOKEN.sub(lambda token: base_form(token.group()), text)


def _paired(run: re.Match[str]) -> str:
    # The last character is also a token, so that every character begins one.
    text = run.group()
    return f" {' '.join(pairs(text))} {text[-1] if len(text) > 1 else ''} "


def _with_parts(match: re.Match[str]) -> str:
    identifier = match[0]
    return (_expanded if len(identifier) <= MAX_CACHED else _expand)(identifier)


def _expand(identifier: str) -> str:
    is_split = not identifier.islower() and _HUMP.search(identifier)
    split = " ".join(parts(identifier)) if is_split or _VERSION.search(identifier) else ""
    joined = " ".join(joined_forms(identifier)) if _CONNECTOR.search(identifier) else ""
    return f"{identifier} {split} {joined} "


_expanded = lru_cache(CACHED)(_expand)


class Columns(NamedTuple):
    title: str
    content: str
    context: str
    tags: str


class End:
    """The end of a memory's content, which the next memories in its session may borrow."""

    __slots__ = ("_prepared", "text")

    def __init__(self, text: str | None, prepared: str | None = None) -> None:
        self.text = text
        self._prepared = prepared

    @classmethod
    def of(cls, content: str) -> "End":
        return cls(end_of(content) if content else None)

    def prepared(self) -> str:
        if self._prepared is None:
            self._prepared = indexed(self.text or "")
        return self._prepared


class Prepared(NamedTuple):
    """The text of a memory as indexed, without its context."""

    source: object  # the original text
    title: str
    content: str
    tags: str
    borrows: bool
    end: tuple[str | None, str | None]  # the arguments of its `End`: as such it is pickled faster


def prepared(
    source: object, title: str, content: str, tags: Iterable[str], *, is_json: bool = False
) -> Prepared:
    end = end_of(content) if content else None
    head, last, tail, stripped = content, "", "", content.rstrip()
    if is_json:
        head = words_of(content)
    elif end and content.isascii() and stripped.endswith(end):
        # In ASCII no word crosses white space, so the end is prepared only once, for both.
        head, last, tail = stripped.removesuffix(end), end, content[len(stripped) :]
    title, head, last, tag_words = map(indexed, (title, head, last, "\n".join(tags)))
    return Prepared(
        source, title, f"{head}{last}{tail}", tag_words, borrows(content), (end, last or None)
    )


def columns(title: str, content: str, tags: Iterable[str], before: Iterable[End]) -> Columns:
    """Return the indexed text of a memory, given the ends before it in the session, oldest first.

    The ends are read only if the memory borrows from them.
    """
    words = prepared(None, title, content, tags)
    borrowed = context(before) if words.borrows else ""
    return Columns(words.title, words.content, borrowed, words.tags)


def context(before: Iterable[End]) -> str:
    ends = [it for it in before if it.text is not None]
    # Preparing a non-ASCII text may depend on the text before it.
    if "".join([it.text or "" for it in ends]).isascii():
        return "\n".join([it.prepared() for it in ends])
    return indexed("\n".join(it.text or "" for it in ends))


MAX_DEPTH = 100  # most nested objects and arrays of accepted JSON


def words_of(value: str) -> str:
    """Return the names, texts and numbers of a JSON value, one per line; other text as it is."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return "\n".join(
        str(it)
        for it in leaves(parsed)
        if isinstance(it, str | int | float) and type(it) is not bool
    )


def object_of(text: str) -> dict[str, Any]:
    """Parse a stored JSON object; ValueError if it is damaged, or could not be stored again."""
    parsed = _DECODER.decode(text)
    if not isinstance(parsed, dict):
        raise ValueError
    if "\\u" in text:  # an escape may be a lone surrogate, which cannot be encoded
        json.dumps(parsed, ensure_ascii=False).encode()
    if text.count("{") + text.count("[") > MAX_DEPTH and depth_of(parsed) > MAX_DEPTH:
        raise ValueError
    return parsed


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError
    return number


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def depth_of(value: object) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (list, dict))]:
        depth += 1
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def leaves(value: object) -> Iterator[object]:
    """Yield every name and every scalar of a JSON value, in order."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


# Invisible characters, by which names must not differ and which must not control terminals.
# Homoglyphs and spaces of any width count as visible.


def invisible(text: str) -> str:
    """Return the first invisible character as `U+200B`, or an empty text.

    Control and format characters, line separators, fillers and Unicode's
    Default_Ignorable_Code_Point are invisible. Joiners between letters of a script that needs
    them, and joiners and variation selectors in an emoji, are visible by their effect.
    """
    if text.isascii() and text.isprintable():
        return ""
    char = next((char for index, char in enumerate(text) if not _is_visible(text, index)), "")
    return f"U+{ord(char):04X}" if char else ""


def has_controls(text: str) -> bool:
    """Whether the text has a control character (C0, DEL or C1)."""
    return _CONTROLS.search(text) is not None


def printable(text: str) -> str:
    r"""Escape invisible characters as `\u200b`, for one line that is safe on a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if _is_visible(text, index) and (char.isprintable() or unicodedata.category(char) == "Cf")
        else f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
        for index, char in enumerate(text)
    )  # fmt: skip


def runs(text: str) -> Iterator[tuple[bool, str]]:
    """Split the text into runs of visible and of invisible characters: (is_visible, run)."""
    if text.isprintable() and text.isascii():
        yield True, text
        return
    for is_visible, run in groupby(range(len(text)), key=lambda index: _is_visible(text, index)):
        yield is_visible, "".join(text[index] for index in run)


def _is_visible(text: str, index: int) -> bool:
    char = text[index]
    if char.isascii():
        return char.isprintable()
    if unicodedata.category(char) not in _INVISIBLE and not _IGNORABLE.match(char):
        return True
    if char in _VISIBLE_FORMATS:
        return True
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if char in _SELECTORS:
        return bool(_EMOJI.match(before)) or (before in _KEYCAPS and after == _KEYCAP)
    if char not in _JOINERS:
        return False
    in_emoji = char == _ZWJ and (_EMOJI.match(before) or before in _SELECTORS)
    return bool(_EMOJI.match(after)) if in_emoji else _is_joining(before) and _is_joining(after)


def _is_joining(char: str) -> bool:
    return bool(_JOINING.match(char)) and unicodedata.category(char)[0] in "LM"


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp"}
_VISIBLE_FORMATS = frozenset(  # category Cf, but drawn around or over the following digits
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
# Default_Ignorable_Code_Point outside the category Cf, and two blank symbols.
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff\u2800\U0001d159]"
)
_ZWJ = "\u200d"
_JOINERS = {"\u200c", _ZWJ}
_SELECTORS = {"\ufe0e", "\ufe0f"}  # for the text and the color form of an emoji
_KEYCAPS, _KEYCAP = set("0123456789#*"), "\u20e3"
_EMOJI = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25aa-\u25fe"
    "\u2600-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
# Scripts whose letters change next to a joiner: Arabic and related scripts, scripts of India,
# Tibetan, Burmese, Khmer, Mongolian, scripts of South-East Asia, and their extensions.
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1700-\u18af\u1900-\u1cff\ua800-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
