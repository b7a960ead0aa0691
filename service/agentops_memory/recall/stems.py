"""Stems of the full-text index: of texts, of memories, and of the in-memory index."""

import re
import sqlite3
import unicodedata
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice, repeat
from typing import NamedTuple

from ..memory.search import PRIOR_MEMORIES, PRIOR_WORDS, WEIGHTS, Field
from .query import (
    MAX_PROMPT,
    MAX_TERMS,
    SHORTEST,
    STOPWORDS,
    TextCache,
    chunk_of,
    is_compared,
    is_one_edit,
    parse_query,
    sentences,
    similarity,
    weight,
)
from .text import INDEX_FORMAT, unified

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
_WORD = re.compile(r"[^\W_]+")
_PREPARED_WORD = re.compile("[0-9a-z]+")  # in prepared ASCII text
_ENDINGS = ("e", "ed")  # endings of words whose stem is stemmed further by itself
MAX_CACHED = 4_096  # words whose stems, or forms, each connection caches: 0.2 KiB a word


INDEX_RULES = (
    f"format {INDEX_FORMAT}, Unicode {unicodedata.unidata_version}, {TOKENIZER}, "
    f"prior {PRIOR_MEMORIES} of {PRIOR_WORDS}"
)
"""The rules that shape the index; an index with other rules is rebuilt."""


class Stems:
    """The stems of words by FTS5's tokenizer, in an in-memory table opened on first use."""

    def __init__(self) -> None:
        self.known = TextCache(self._stemmed, MAX_CACHED)  # stems by word
        self.compared = TextCache(self._compared, MAX_CACHED)  # forms, empty if not compared
        self._scratch: sqlite3.Connection | None = None

    def forms(self, words: Iterable[str]) -> dict[str, str]:
        """Return for each word a form that has the same stem, equal for all words of the stem.

        The form is the stem, or the stem with an ending if it would be stemmed further. It is
        empty if no ending gives the stem, or if the tokenizer splits the word.
        """
        stems = self.of(words)
        forms = self.forms_of(filter(None, stems.values()))
        return {word: forms.get(stem, "") for word, stem in stems.items()}

    def _compared(self, words: Iterable[str]) -> dict[str, str]:
        return {word: it if is_compared(it) else "" for word, it in self.forms(words).items()}

    def forms_of(self, stems: Iterable[str]) -> dict[str, str]:
        """Return the form of each stem, as `forms` does."""
        restemmed = self.of(stems)
        # "nois" has the stem "noi", and "noise" has the stem "nois".
        changing = (stem for stem, restem in restemmed.items() if stem != restem)
        longer = {stem: [f"{stem}{it}" for it in _ENDINGS] for stem in changing}
        stem_of = restemmed | self.of(chain.from_iterable(longer.values()))
        return {
            stem: next((it for it in longer.get(stem, [stem]) if stem_of[it] == stem), "")
            for stem in restemmed
        }

    def near(self, stems_of: Mapping[str, Iterable[str]]) -> dict[str, dict[str, str]]:
        """Return for each form the forms of its stems that are one edit away from it.

        They have the same first letter, and are sorted, each with its stem.
        """
        candidates: dict[str, list[str]] = {}
        for form, stems in stems_of.items():
            head, tails = halves(form)
            candidates[form] = [
                stem
                for stem in stems
                if stem[:1] == form[0]
                and (stem.startswith(head) or stem.endswith(tails))
                and may_be_one_edit(form, stem)
            ]
        form_of = self.forms_of(chain.from_iterable(candidates.values()))
        near: dict[str, dict[str, str]] = {}
        for form, stems in candidates.items():
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
        known = self.known.get_all(chain.from_iterable(plain.values()))
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
        return self.known.get_all(words)

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
            tokens.setdefault(position, []).append(token)
        return {
            word: its[0] if len(its := tokens.get(position, [])) == 1 else ""
            for position, word in enumerate(words)
        }


def _read(scratch: sqlite3.Connection) -> list[tuple[int, str]]:
    r"""Return the tokens; a lone mark is empty, a cut character is escaped as `\xe6`."""
    statement = "SELECT doc, {} FROM tokens"
    try:
        return scratch.execute(statement.format("coalesce(term, '')")).fetchall()
    except sqlite3.OperationalError:  # FTS5 truncates at 32,768 bytes, even within a character
        rows = scratch.execute(statement.format("CAST(coalesce(term, '') AS BLOB)")).fetchall()
        return [(position, token.decode(errors="backslashreplace")) for position, token in rows]


def likely_in(line: str, form: str) -> Iterator[str]:
    """Yield the stems in a line, with a space around each, that share a half with the form."""
    head, tails = halves(form)
    for text in (f" {head}", *(f"{tail} " for tail in tails)):
        at = line.find(text)
        while at >= 0:
            start = line.rfind(" ", 0, at + 1) + 1
            at = line.find(" ", start)
            if at >= 0:
                yield line[start:at]
                at = line.find(text, at)


def may_be_one_edit(form: str, stem: str) -> bool:
    """Whether the form of the stem, which may have an ending, may be one edit from `form`."""
    return len(form) - 3 <= len(stem) <= len(form) + 1 and any(
        is_one_edit(form, f"{stem}{ending}") for ending in ("", *_ENDINGS)
    )


def halves(form: str) -> tuple[str, tuple[str, ...]]:
    """Return a beginning and endings; a stem whose form is one edit away has one of them.

    An edit leaves one half as it is. Endings differ because a form may be longer than its stem.
    """
    half = len(form) // 2
    tail = form[half + 1 :]
    ends = [it for it in ("", *_ENDINGS) if tail.endswith(it) or it.endswith(tail)]
    return form[:half], tuple(tail[: max(len(tail) - len(it), 0)] for it in ends)


def _opened() -> sqlite3.Connection:
    scratch = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    scratch.execute(
        f"""CREATE VIRTUAL TABLE words
              USING fts5 (word, content = '', columnsize = 0, tokenize = "{TOKENIZER}")"""
    )
    scratch.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (words, instance)")
    return scratch


Packed = int
"""Counts of a stem in each field, `COUNT` bits per field, the title in the lowest."""

COUNT = 24  # bits, more than any stored text has words
_OWN = tuple(it is not Field.CONTEXT for it in Field)  # the context has borrowed words


Entry = str
"""The stems of a memory as stored: a line per group with equal counts, with these and the stems."""


def entry_of(fields: Sequence[Sequence[str]]) -> Entry:
    """Return the entry for the stems of each field, in the order of `Field`."""
    counts: dict[str, Packed] = {}
    for at, stems in enumerate(fields):
        one = 1 << COUNT * at
        for stem in stems:
            counts[stem] = counts.get(stem, 0) + one
    return entry_with(counts)


def entry_with(counts: Mapping[str, Packed]) -> Entry:
    by_count: dict[Packed, list[str]] = {}
    for stem, packed in counts.items():
        by_count.setdefault(packed, []).append(stem)
    return "\n".join(f"{packed:x} {' '.join(stems)}" for packed, stems in by_count.items())


def groups_of(entry: Entry) -> list[list[str]]:
    """Return the groups of an entry: each has the counts, as stored, and the stems."""
    return [line.split(" ") for line in entry.split("\n")] if entry else []


def length_of(entry: Entry) -> int:
    """Return the length of the memory in words."""
    return sum(COUNTED[counts][0] * len(stems) for counts, *stems in groups_of(entry))


class _Counted(dict[str, tuple[int, float, float]]):
    def __missing__(self, counts: str) -> tuple[int, float, float]:
        if len(self) > MAX_COUNTED:
            self.clear()
        left, words, weighted, own = int(counts, 16), 0, 0.0, 0.0
        for of_field, is_own in zip(WEIGHTS, _OWN, strict=True):
            count = left & (1 << COUNT) - 1
            left >>= COUNT
            words += count
            for _ in range(count):  # as `frequency` adds, to the last bit
                weighted += of_field
                own += of_field * is_own
        self[counts] = known = words, weighted, own
        return known


COUNTED: Mapping[str, tuple[int, float, float]] = _Counted()
"""By a stem's stored counts, their sum and its weighted frequency, also in own words.

Malformed counts raise ValueError.
"""

MAX_COUNTED = 65_536  # ordinary text has some hundreds of different counts
FORMS_PER_BATCH = 64  # stems whose forms are looked up together, in 0.5 ms
UNKNOWN = -1  # the number of a stem that no cached memory has
MOST_FORMS = 16_384  # words whose neighbors are cached in each of two generations

FormsOf = Callable[[Iterable[str]], Mapping[str, str]]
"""The type of `Stems.forms_of`."""


class Vocabulary:
    """Numbers for the stems of cached projects.

    A stem is removed with the last area that has it, so that erased words do not stay in memory.
    All methods are called under the lock of the index.
    """

    def __init__(self, forms_of: FormsOf | None = None) -> None:
        """Without `forms_of`, `near` finds nothing."""
        self.numbers: dict[str, int] = {}
        self.generation = 0  # how often stems were removed
        self.unnumbered: dict[str, list[int]] = {}  # words of prompts, by stems without a number
        self.numbered: list[tuple[int, int]] = []  # words of those stems that got a number
        self._forms_of = forms_of
        self._stems: list[str] = []  # by number
        self._uses = array("I")  # the number of areas with the stem, by number
        self._free: list[int] = []
        # Stems whose forms are not known yet, by first letter: typos need few of them.
        self._formless: dict[str, dict[str, None]] = {}
        self._form_of: dict[str, str] = {}  # by stem, if it differs
        # Lists, as a set of a few stems takes four times the memory.
        self._compared: dict[str, list[str]] = {}  # stems by each of the `_keys` of their forms
        self._added: dict[str, int] = {}  # the number of forms ever added, by first letter
        self._near = TextCache(self._neighbors, MOST_FORMS)

    def number(self, stem: str) -> int:
        return self.numbers.get(stem, UNKNOWN)

    def text_of(self, number: int) -> str:
        return self._stems[number]

    def add(self, stems: Iterable[str]) -> list[int]:
        """Count the use of an area's stems; return their numbers, new where missing, in order."""
        get, uses = self.numbers.get, self._uses
        added = list[int]()
        for stem in stems:
            number = get(stem)
            if number is None:
                number = self._new(stem)
            uses[number] += 1
            added.append(number)
        return added

    def remove(self, numbers: Iterable[int]) -> None:
        """Stop counting the use of these stems by an area; remove the unused ones."""
        uses, unused = self._uses, []
        for number in numbers:
            uses[number] -= 1
            if not uses[number]:
                unused.append(number)
        for number in unused:
            del self.numbers[self._stems[number]]
        if unused:
            self.generation += 1
            self._forget_forms({self._stems[number] for number in unused})
        for number in unused:
            self._stems[number] = ""
        self._free += unused

    @property
    def size(self) -> int:
        return 260 * len(self.numbers) + 150 * self._near.count

    def prepare(self, forms: Iterable[str]) -> None:
        """Look up the forms of stems that may be near, as `near` needs it, all at once."""
        stems: set[str] = set()
        for form in forms:
            if waiting := self._formless.get(form[0]):
                likely = likely_in(f" {' '.join(waiting)} ", form)
                stems.update(it for it in likely if may_be_one_edit(form, it))
        if stems:
            self._add_forms_of(list(stems))

    def near(self, form: str) -> Mapping[int, str]:
        """Return the numbers of stems whose form is one edit from this one, with these forms."""
        added, near = self._near[form]
        if added != self._added.get(form[0], 0):
            self._near[form] = _, near = self._neighbors([form])[form]
        return near

    def add_some_forms(self) -> bool:
        """Look up the forms of a batch of new stems; return whether more stems are left."""
        if self._formless:
            waiting = next(iter(self._formless.values()))
            self._add_forms_of(list(islice(waiting, FORMS_PER_BATCH)))
        return bool(self._formless)

    def _add_forms_of(self, stems: Sequence[str]) -> None:
        assert self._forms_of is not None
        for stem, form in self._forms_of(stems).items():
            self._leave(stem)
            if is_compared(form):
                for key in _keys(form):
                    self._compared.setdefault(key, []).append(stem)
                if form != stem:
                    self._form_of[stem] = form
                self._added[form[0]] = self._added.get(form[0], 0) + 1

    def _leave(self, stem: str) -> None:
        """Let a stem wait no longer for its form."""
        first = stem[:1]  # a lone accent has an empty stem
        waiting = self._formless.get(first, {})
        if waiting.pop(stem, stem) is None and not waiting:
            del self._formless[first]

    def _neighbors(self, forms: Iterable[str]) -> dict[str, tuple[int, dict[int, str]]]:
        form_of, near = self._form_of.get, dict[str, tuple[int, dict[int, str]]]()
        for form in forms:
            head, (tail, *_) = halves(form)
            sizes = range(len(form) - 1, len(form) + 2)
            keys = chain.from_iterable([_keys(form, size) for size in sizes])
            stems = chain.from_iterable([self._compared.get(it, ()) for it in keys])
            candidates = [(stem, form_of(stem, stem)) for stem in stems]
            by_number = {
                self.numbers[stem]: it
                for stem, it in candidates
                if (it.startswith(head) or it.endswith(tail)) and is_one_edit(form, it)
            }
            near[form] = self._added.get(form[0], 0), by_number
        return near

    def _forget_forms(self, stems: Set[str]) -> None:
        """Remove the forms of removed stems, and all cached neighbors."""
        self._near.forget()
        for it in stems:
            self._leave(it)
        forms = {self._form_of.pop(it, it) for it in stems}
        # Each bucket once: a scan per form takes minutes if thousands share a bucket.
        for key in {key for form in forms if is_compared(form) for key in _keys(form)}:
            if left := [it for it in self._compared.pop(key, ()) if it not in stems]:
                self._compared[key] = left

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
            self._formless.setdefault(stem[0], {})[stem] = None
        if stem in self.unnumbered:
            self.numbered += [(word, number) for word in self.unnumbered.pop(stem)]
        return number


def _keys(form: str, size: int = 0) -> tuple[str, str]:
    """Return the bucket keys of forms of a size that begin, and that end, like this form."""
    size = size or len(form)
    return f"{form[:2]}{size}", f"{form[0]}{size}{form[-1]}"


MAX_CHUNK_CHARS = 3_000_000  # of all chunks
CHUNK_OVERHEAD = 100  # characters that each counts in addition
NO_WORD, NOT_PLAIN = -1, -2  # in place of a word; lower numbers stand for several words
UNSEEN = -(1 << 62)  # a chunk that no prompt had

Word = int
"""Twice the number of a word, plus one if it may be misspelt."""


class ParsedPrompt(NamedTuple):
    """The words by which a prompt is ranked, as codes of `PromptWords`."""

    sentences: list[tuple[list[int], float]]  # the words and the weight of each
    doubtful: list[int]  # words that may be misspelt, in order
    is_plain: bool  # whether each word is one piece


class PromptWords(dict[str, Word]):
    """The code of each whitespace-separated chunk of text.

    The code of a word is twice its number, plus one if it may be misspelt. Numbers, because under
    load most time is spent on cache misses. NO_WORD is a stop word, NOT_PLAIN needs the full
    parser. Used under the lock of the index.
    """

    def __init__(self, vocabulary: Vocabulary, stem_of: TextCache[str]) -> None:
        super().__init__()
        self.texts: list[str] = []  # by code
        self.stems = array("i")  # stem numbers, by code
        self._words: dict[str, int] = {}
        self._multi_word: list[Sequence[Word]] = [()] * 3  # words of chunks such as identifiers
        self._size = 0  # approximate characters
        self._vocabulary = vocabulary
        self._stem_of = stem_of
        self._generation = vocabulary.generation

    def _add(self, texts: Iterable[str]) -> None:
        chunks = {it: chunk_of(it) for it in texts}
        # All at once: one use of the tokenizer costs as much as twenty words.
        terms = chain.from_iterable(it.terms for it in chunks.values())
        stem_of = self._stem_of.get_all(it.text for it in terms)
        for text, chunk in chunks.items():
            self._size += CHUNK_OVERHEAD + len(text)
            if any(it.starts or not stem_of[it.text] for it in chunk.terms):
                word = NOT_PLAIN
            elif not chunk.terms:
                word = NO_WORD
            else:
                texts = [it.text for it in chunk.terms]
                words = [self._word(it) + (it in chunk.doubtful) for it in texts]
                word = words[0]
                if len(words) > 1 or not chunk.pieces[0].parts:
                    self._multi_word.append(words)
                    word = 1 - len(self._multi_word)
            self[text] = word

    def parsed(self, prompt: str) -> ParsedPrompt | None:
        """Parse a prompt; None if it has a prefix, or a word that the tokenizer splits."""
        if self._size > MAX_CHUNK_CHARS:  # not within a request: it holds words as numbers
            self._clear()
        self.catch_up()
        return self._of_chunks(prompt[:MAX_PROMPT]) or self._of_terms(prompt)

    def _of_chunks(self, prompt: str) -> ParsedPrompt | None:
        """Parse plain text of few terms, as most prompts are; None for others."""
        parsed, doubtful, room = list[tuple[list[int], str]](), list[int](), MAX_TERMS
        is_plain, several = True, self._multi_word
        if not prompt.isascii():
            return None
        for sentence in sentences(prompt):
            chunks: Collection[str] = sentence.split()
            if not chunks:
                continue
            if len(chunks) > room:
                chunks = dict.fromkeys(chunks)
            codes = [*map(self.get, chunks, repeat(UNSEEN))]
            words = dict.fromkeys(codes)
            if UNSEEN in words:
                self._add(dict.fromkeys(it for it in chunks if it not in self))
                codes = [*map(self.__getitem__, chunks)]
                words = dict.fromkeys(codes)
            words.pop(NO_WORD, None)
            if not words or NOT_PLAIN in words:  # stop words only, or not plain
                return None
            terms = len(codes) - codes.count(NO_WORD)
            uncertain: Collection[int] = words
            if min(words) < 0:
                is_plain = False
                its = [several[-it] if it < 0 else (it,) for it in codes if it != NO_WORD]
                uncertain = codes = [*chain.from_iterable(its)]
                terms = len(codes)
                words = {it | 1: it for it in codes}
            if terms > room:
                return None
            room -= len(words)
            parsed.append(([*words], sentence))
            doubtful += [it for it in uncertain if it & 1]
        if len(parsed) == 1:
            return ParsedPrompt([(parsed[0][0], 1.0)], doubtful, is_plain)
        weighed = [(words, weight(sentence, len(words))) for words, sentence in parsed]
        return ParsedPrompt(weighed, doubtful, is_plain)

    def _of_terms(self, prompt: str) -> ParsedPrompt | None:
        query = parse_query(prompt)
        if any(it.starts or not self._stem_of[it.text] for it in query.terms):
            return None
        parsed = [([self._word(it.text) for it in its], weight) for its, weight in query.sentences]
        return ParsedPrompt(parsed, [*map(self._word, query.doubtful)], is_plain=False)

    def _word(self, text: str) -> int:
        word = self._words.get(text)
        if word is None:
            word = self._words[text] = len(self.texts)  # even, as each has two codes
            self.texts += text, text
            stem = self._stem_of[text]
            number = self._vocabulary.number(stem)
            self.stems.extend((number, number))
            if number == UNKNOWN:
                self._vocabulary.unnumbered.setdefault(stem, []).append(word)
        return word

    def catch_up(self) -> None:
        """Follow stems that the vocabulary has added or forgotten."""
        vocabulary = self._vocabulary
        if self._generation != vocabulary.generation:
            self._clear()
        for word, number in vocabulary.numbered:
            self.stems[word] = self.stems[word + 1] = number
        vocabulary.numbered.clear()

    def _clear(self) -> None:
        vocabulary = self._vocabulary
        self.clear()
        self.texts, self.stems, self._words = [], array("i"), {}
        self._multi_word, self._size = [()] * 3, 0
        vocabulary.unnumbered, vocabulary.numbered = {}, []
        self._generation = vocabulary.generation
