"""The words of the full-text index, and their stems: of a text, of a memory, of a database."""

import re
import sqlite3
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, groupby, islice
from operator import itemgetter
from threading import Lock
from typing import NamedTuple

from ..memory.search import PRIOR_MEMORIES, PRIOR_WORDS, Field, frequency
from .features import ALL, INDEXED, Features
from .query import SHORTEST, STOPWORDS, Remembered, is_compared, is_one_edit, similarity
from .text import INDEX_FORMAT, unified

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
_WORD = re.compile(r"[^\W_]+")
_PREPARED_WORD = re.compile("[0-9a-z]+")  # where there is nothing beyond ASCII
_ENDINGS = ("e", "ed")  # of words whose stem is no stem of itself
KNOWN = 4_096  # words whose stems, or forms, each connection remembers: 0.2 KiB a word


def rules(features: Features = ALL) -> str:
    """What the index's words depend on; an index by other rules is built again."""
    without = sorted(INDEXED - features)
    prior = f"prior {PRIOR_MEMORIES} of {PRIOR_WORDS}"
    parts = [f"format {INDEX_FORMAT}", f"Unicode {unicodedata.unidata_version}", TOKENIZER, prior]
    return ", ".join([*parts, *(f"without {feature}" for feature in without)])


class Stems:
    """What words are in the index, by a full-text table in memory; opened on first use."""

    def __init__(self) -> None:
        self.known = Remembered(self._stemmed, KNOWN)
        self.compared = Remembered(self._compared, KNOWN)  # forms, empty for what is not compared
        self._scratch: sqlite3.Connection | None = None

    def forms(self, words: Iterable[str]) -> dict[str, str]:
        """For each word what to look for to find its stem, the same for all that share it.

        That is the stem itself, or the shortest word found that has it; the empty
        string for a word that the index takes apart.
        """
        stems = self.of(words)
        forms = self.forms_of(filter(None, stems.values()))
        return {word: forms.get(stem, "") for word, stem in stems.items()}

    def _compared(self, words: Iterable[str]) -> dict[str, str]:
        return {word: it if is_compared(it) else "" for word, it in self.forms(words).items()}

    def forms_of(self, stems: Iterable[str]) -> dict[str, str]:
        """The same for each of some stems."""
        again = self.of(stems)
        # Stemming "nois" again gives "noi", and "noise" gives "nois".
        changing = {stem for stem, stem_again in again.items() if stem != stem_again}
        likely = self.of(f"{stem}{ending}" for stem in changing for ending in _ENDINGS)
        return {stem: _form(stem, likely) if stem in changing else stem for stem in again}

    def near(self, stems_of: Mapping[str, Iterable[str]]) -> dict[str, dict[str, str]]:
        """For each form the forms of its stems that are one edit from it and begin with its letter.

        In the order of the alphabet, each with its stem.
        """
        likely: dict[str, list[str]] = {}
        for form, stems in stems_of.items():
            size, (head, tails) = len(form), halves(form)
            likely[form] = [
                stem
                for stem in stems
                if stem[:1] == form[0]
                and (stem.startswith(head) or stem.endswith(tails))
                and size - 3 <= len(stem) <= size + 1
                and any(is_one_edit(form, f"{stem}{ending}") for ending in ("", *_ENDINGS))
            ]
        form_of = self.forms_of(chain.from_iterable(likely.values()))
        near: dict[str, dict[str, str]] = {}
        for form, stems in likely.items():
            stem_of = {form_of[it]: it for it in stems}
            forms = [it for it in stem_of if is_compared(it) and is_one_edit(form, it)]
            near[form] = {it: stem_of[it] for it in sorted(forms)}
        return near

    def similarities(self, texts: Iterable[str]) -> list[float]:
        every = [frozenset(_WORD.findall(unified(it).casefold())) - STOPWORDS for it in texts]
        stem_of = self.of(chain.from_iterable(every))
        own, *others = ({stem_of[word] or word for word in words} for words in every)
        return [similarity(own, other) for other in others]

    def of_texts(self, texts: Sequence[str]) -> list[list[str]]:
        stems: list[list[str]] = [[] for _ in texts]
        plain = {at: _PREPARED_WORD.findall(it) for at, it in enumerate(texts) if it.isascii()}
        known = self.known.of(chain.from_iterable(plain.values()))
        for at, words in plain.items():
            stems[at] = [known[word] for word in words]
        others = [at for at in range(len(texts)) if at not in plain]
        for position, token in self._tokens([texts[at] for at in others]) if others else ():
            stems[others[position]].append(token)
        return stems

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def of(self, words: Iterable[str]) -> dict[str, str]:
        return self.known.of(words)

    def _tokens(self, texts: list[str]) -> list[tuple[int, str]]:
        if self._scratch is None:
            self._scratch = _opened()
        rows = enumerate(texts)
        self._scratch.execute("BEGIN")
        try:
            self._scratch.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", rows)
            return _read(self._scratch)
        finally:
            self._scratch.execute("ROLLBACK")

    def _stemmed(self, words: Sequence[str]) -> dict[str, str]:
        tokens: dict[int, list[str]] = {}
        for position, token in self._tokens(list(words)):
            tokens.setdefault(position, []).append(token or "")  # of a lone mark
        return {
            word: its[0] if len(its := tokens.get(position, [])) == 1 else ""
            for position, word in enumerate(words)
        }


def _read(scratch: sqlite3.Connection) -> list[tuple[int, str]]:
    r"""The tokens there, empty for a lone mark; the last bytes of a broken one as `\xe6`."""
    statement = "SELECT doc, {} FROM tokens"
    try:
        return scratch.execute(statement.format("coalesce(term, '')")).fetchall()
    except sqlite3.OperationalError:  # FTS5 cuts after 32,768 bytes, also within a character
        rows = scratch.execute(statement.format("CAST(coalesce(term, '') AS BLOB)")).fetchall()
        return [(position, token.decode(errors="backslashreplace")) for position, token in rows]


def likely_in(line: str, form: str) -> Iterator[str]:
    """The stems of own words in a line of `by_letter` that begin or end as `halves` tells."""
    head, tails = halves(form)
    for text in (f" {head}", *(f"{tail} " for tail in tails)):
        at = line.find(text)
        while at >= 0:
            start = line.rfind(" ", 0, at + 1) + 1
            at = line.find(" ", start)
            if at >= 0:
                if line[at - 1] != BORROWED:
                    yield line[start:at]
                at = line.find(text, at)


def halves(form: str) -> tuple[str, tuple[str, ...]]:
    """How a stem begins or ends whose form is one edit from a form, which leaves one half as it is.

    A form may end behind its stem.
    """
    half = len(form) // 2
    tail = form[half + 1 :]
    ends = [it for it in ("", *_ENDINGS) if tail.endswith(it) or it.endswith(tail)]
    return form[:half], tuple(tail[: max(len(tail) - len(it), 0)] for it in ends)


def _form(stem: str, likely: Mapping[str, str]) -> str:
    words = (f"{stem}{ending}" for ending in _ENDINGS)
    return next((word for word in words if likely[word] == stem), "")


def _opened() -> sqlite3.Connection:
    scratch = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    scratch.execute(
        f"""CREATE VIRTUAL TABLE words
              USING fts5 (word, content = '', columnsize = 0, tokenize = "{TOKENIZER}")"""
    )
    scratch.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (words, instance)")
    return scratch


Packed = int
"""How often a stem stands in each field, `COUNT` bits a field, the title lowest."""

COUNT = 24  # bits: no stored text has so many words
_OWN = tuple(it is not Field.CONTEXT for it in Field)  # a memory borrows its context
BORROWED = "~"  # behind a stem, of which it is no part
_OWN_BITS = sum(((1 << COUNT) - 1) << COUNT * at for at, is_own in enumerate(_OWN) if is_own)


class Entry(NamedTuple):
    """The stems of a memory by their counts, and its length in words."""

    length: int
    stems: Sequence[tuple[Packed, Sequence[str]]]

    @classmethod
    def of_fields(cls, fields: Sequence[Sequence[str]]) -> "Entry":
        """The entry of the stems of each field, in their order."""
        counts: dict[str, Packed] = {}
        for at, stems in enumerate(fields):
            one = 1 << COUNT * at
            for stem in stems:
                counts[stem] = counts.get(stem, 0) + one
        return cls.of_counts(sum(map(len, fields)), counts)

    @classmethod
    def of_counts(cls, length: int, counts: Mapping[str, Packed]) -> "Entry":
        by_count: dict[Packed, list[str]] = {}
        for stem, packed in counts.items():
            by_count.setdefault(packed, []).append(stem)
        return cls(length, list(by_count.items()))

    @property
    def stored(self) -> str:
        """As it is stored: a line for each of the counts, with its stems."""
        return "\n".join(f"{packed:x} {' '.join(stems)}" for packed, stems in self.stems)

    @classmethod
    def loaded(cls, stored: str) -> "Entry":
        """The entry that was stored; a ValueError if it is none."""
        stems: list[tuple[Packed, list[str]]] = []
        length = 0
        for line in stored.split("\n") if stored else ():
            counts, *of_line = line.split(" ")
            packed = int(counts, 16)
            stems.append((packed, of_line))
            length += sum(_counts(packed)) * len(of_line)
        return cls(length, stems)

    @property
    def counts(self) -> dict[str, Packed]:
        return {stem: packed for packed, stems in self.stems for stem in stems}

    @property
    def marked(self) -> Iterator[str]:
        """The stems, those with a mark that only borrowed words have."""
        for packed, stems in self.stems:
            yield from stems if packed & _OWN_BITS else [it + BORROWED for it in stems]


def by_letter(marked: Set[str]) -> str:
    """A line for each first letter, with a space around each stem."""
    own = {it for it in marked if it and not it.endswith(BORROWED)}
    stems = sorted(own | {it for it in marked - own if it[:-1] and it[:-1] not in own})
    return "\n".join(f" {' '.join(them)} " for _, them in groupby(stems, itemgetter(0)))


def frequencies(packed: Packed, weights: Iterable[float]) -> tuple[float, float]:
    """How often a stem stands in a memory, by the weights of the fields; and in its own words."""
    counts, weights = _counts(packed), tuple(weights)
    own = tuple(it * is_own for it, is_own in zip(counts, _OWN, strict=True))
    return frequency(counts, weights), frequency(own, weights)


def _counts(packed: Packed) -> tuple[int, ...]:
    return tuple(packed >> COUNT * field & (1 << COUNT) - 1 for field in range(len(_OWN)))


FORMS_AT_ONCE = 256  # stems whose forms are looked for together: 2 ms
UNKNOWN = -1  # instead of the number of a stem that no memory in memory has
MOST_CODES = 65_536  # of text as people write it there are some hundreds
MOST_FORMS = 16_384  # words whose neighbors are remembered in each of two generations

FormsOf = Callable[[Iterable[str]], Mapping[str, str]]
"""As `Stems.forms_of`."""


class Vocabulary:
    """Numbers for stems and for how often one stands in the fields of a memory.

    A stem is forgotten when no project in memory has it, so that erased words leave with it.
    All but `code_of` is used under the lock of the index.
    """

    def __init__(self, weights: tuple[float, ...], forms_of: FormsOf | None = None) -> None:
        """Without `forms_of` no neighbors are looked for."""
        self.numbers: dict[str, int] = {}
        self.coded = 0  # how often codes were given anew
        self._coding = Lock()  # projects are read by other threads
        self.forget_codes()
        self.gone = 0  # how often stems were forgotten
        self.unknown: dict[str, list[int]] = {}  # words of prompts, by their stems without number
        self.came: list[tuple[int, int]] = []  # those of them whose stems have numbers since
        self._forms_of = forms_of
        self._weights = weights
        self._stems: list[str] = []  # by number
        self._uses = array("I")  # how many areas have the stem, by number
        self._free: list[int] = []
        self._formless: dict[str, None] = {}  # stems whose forms were not looked for yet
        self._stem_of: dict[str, str] = {}  # of each form that is no stem itself
        # Lists: a set of a few forms takes four times as much.
        self._alike: dict[str, list[str]] = {}  # the forms of the stems, by each of their `_keys`
        self._came: dict[str, int] = {}  # how often one came, by its first letter
        self._near = Remembered(self._neighbors, MOST_FORMS)

    def number(self, stem: str) -> int:
        return self.numbers.get(stem, UNKNOWN)

    def forget_codes(self) -> None:
        """Give codes anew, when no area holds one."""
        with self._coding:
            self.coded += 1
            self.codes: dict[str, tuple[int, int]] = {}  # and the words, by counts as stored
            self.often, self.often_own = array("d"), array("d")  # by code

    def code_of(self, counts: str) -> tuple[int, int]:
        """The code of counts, and how many words they are; a ValueError for no counts."""
        packed = int(counts, 16)
        often, own = frequencies(packed, self._weights)
        with self._coding:
            if counts not in self.codes:
                self.often.append(often)
                self.often_own.append(own)
                self.codes[counts] = len(self.codes), sum(_counts(packed))
            return self.codes[counts]

    def add(self, stems: Iterable[str]) -> list[int]:
        """The numbers of an area's stems, in their order; new ones for those that have none."""
        get, uses = self.numbers.get, self._uses
        its_numbers = list[int]()
        for stem in stems:
            number = get(stem)
            if number is None:
                number = self._new(stem)
            uses[number] += 1
            its_numbers.append(number)
        return its_numbers

    def remove(self, numbers: Iterable[int]) -> None:
        """An area has these stems no longer."""
        uses, gone = self._uses, []
        for number in numbers:
            uses[number] -= 1
            if not uses[number]:
                gone.append(number)
        for number in gone:
            del self.numbers[self._stems[number]]
        if gone:
            self.gone += 1
            self._forget_forms({self._stems[number] for number in gone})
        for number in gone:
            self._stems[number] = ""
        self._free += gone

    @property
    def size(self) -> int:
        return 260 * len(self.numbers) + 150 * self._near.count

    def near(self, form: str) -> Mapping[int, str]:
        """The numbers of the stems that have a form near to this one, with these forms."""
        if self.look_for_forms():  # those of a whole project would keep the event loop
            size, (head, tails) = len(form), halves(form)
            self._add_forms_of([
                it for it in self._formless
                if it[0] == form[0] and size - 3 <= len(it) <= size + 1
                and (it.startswith(head) or it.endswith(tails))
            ])  # fmt: skip
        came, near = self._near[form]
        if came != self._came.get(form[0], 0):
            self._near[form] = _, near = self._neighbors([form])[form]
        return near

    def look_for_forms(self) -> bool:
        """Look for the forms of some stems that came; whether others are left."""
        if self._formless:
            self._add_forms_of(list(islice(reversed(self._formless), FORMS_AT_ONCE)))
        return bool(self._formless)

    def _add_forms_of(self, stems: Sequence[str]) -> None:
        assert self._forms_of is not None
        for stem, form in self._forms_of(stems).items():
            del self._formless[stem]
            if is_compared(form):
                for key in _keys(form):
                    self._alike.setdefault(key, []).append(form)
                if form != stem:
                    self._stem_of[form] = stem
                self._came[form[0]] = self._came.get(form[0], 0) + 1

    def _neighbors(self, forms: Iterable[str]) -> dict[str, tuple[int, dict[int, str]]]:
        stem_of, near = self._stem_of.get, dict[str, tuple[int, dict[int, str]]]()
        for form in forms:
            head, (tail, *_), likely = *halves(form), set[str]()
            for size in range(len(form) - 1, len(form) + 2):
                heads, tails = map(self._alike.get, _keys(form, size))
                likely.update([it for it in heads or () if it.startswith(head)])
                likely.update([it for it in tails or () if it.endswith(tail)])
            by_number = {
                self.numbers[stem_of(it, it)]: it for it in likely if is_one_edit(form, it)
            }
            near[form] = self._came.get(form[0], 0), by_number
        return near

    def _forget_forms(self, stems: Set[str]) -> None:
        """Forget those of stems that are gone, and what they were near to."""
        self._near.forget()
        for it in stems:
            self._formless.pop(it, None)
        form_of = {stem: form for form, stem in self._stem_of.items() if stem in stems}
        # What "noisee" becomes is what "noise" is found by: it stays when the other leaves.
        forms = {*form_of.values(), *(stems - self._stem_of.keys() - form_of.keys())}
        # Each bucket once: to look for each form in it takes minutes where thousands share one.
        for key in {key for form in forms if is_compared(form) for key in _keys(form)}:
            if left := [it for it in self._alike.pop(key, ()) if it not in forms]:
                self._alike[key] = left
        for form in form_of.values():
            del self._stem_of[form]

    def _new(self, stem: str) -> int:
        if self._free:
            number = self._free.pop()
            self._stems[number] = stem
        else:
            number = len(self._stems)
            self._stems.append(stem)
            self._uses.append(0)
        self.numbers[stem] = number
        if self._forms_of is not None and is_compared(stem, SHORTEST - len(_ENDINGS[-1])):
            self._formless[stem] = None
        if stem in self.unknown:
            self.came += [(word, number) for word in self.unknown.pop(stem)]
        return number


def _keys(form: str, size: int = 0) -> tuple[str, str]:
    """What forms that begin, and that end, like one and have a size are found by."""
    size = size or len(form)
    return f"{form[:2]}{size}", f"{form[0]}{size}{form[-1]}"
