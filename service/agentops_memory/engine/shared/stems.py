"""The words of the full-text index, of whichever engine: FTS5 cuts and stems them."""

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from ...memory.model.ranking import PRIOR_MEMORIES, PRIOR_WORDS
from ...recall.text.features import ALL, INDEXED, Features
from ...recall.text.normalization import INDEX_FORMAT, unified
from ...recall.text.query import STOPWORDS, Remembered, is_compared, is_one_edit, similarity

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
        self._forms = Remembered(self._found, KNOWN)
        self.compared = Remembered(self._compared, KNOWN)  # forms, empty for what is not compared
        self._scratch: sqlite3.Connection | None = None

    def forms(self, words: Iterable[str]) -> dict[str, str]:
        """For each word what to look for to find its stem, the same for all that share it.

        That is the stem itself, or the shortest word found that has it; the empty
        string for a word that the index takes apart.
        """
        return self._forms.of(words)

    def _compared(self, words: Iterable[str]) -> dict[str, str]:
        return {word: it if is_compared(it) else "" for word, it in self.forms(words).items()}

    def _found(self, words: Iterable[str]) -> dict[str, str]:
        stems = self.of(words)
        forms = self.forms_of(filter(None, stems.values()))
        return {word: forms.get(stem, "") for word, stem in stems.items()}

    def forms_of(self, stems: Iterable[str]) -> dict[str, str]:
        """The same for each of some stems."""
        again = self.of(stems)
        # Stemming "nois" again gives "noi", and "noise" gives "nois".
        changing = {stem for stem, found in again.items() if stem != found}
        likely = self.of(f"{stem}{ending}" for stem in changing for ending in _ENDINGS)
        return {stem: _form(stem, likely) if stem in changing else stem for stem in again}

    def near(self, form: str, stems: Iterable[str]) -> list[str]:
        """The forms of some stems that are one edit from a form and begin with its letter."""
        size, half = len(form), len(form) // 2
        # One edit leaves the first or the second half as it is; a form may end behind its stem.
        head, tail, endings = form[:half], form[half + 1 :], ("", *_ENDINGS)
        tails = tuple(
            tail[: max(len(tail) - len(it), 0)]
            for it in endings
            if tail.endswith(it) or it.endswith(tail)
        )
        likely = [
            stem
            for stem in stems
            if (stem.startswith(head) or stem.endswith(tails))
            and stem[0] == form[0]
            and size - 3 <= len(stem) <= size + 1
            and any(is_one_edit(form, f"{stem}{ending}") for ending in endings)
        ]
        found = self.forms_of(likely).values()
        return sorted({it for it in found if is_compared(it) and is_one_edit(form, it)})

    def similarities(self, texts: Iterable[str]) -> list[float]:
        said = [frozenset(_WORD.findall(unified(text).casefold())) - STOPWORDS for text in texts]
        stem_of = self.of(chain.from_iterable(said))
        own, *others = ({stem_of[word] or word for word in words} for words in said)
        return [similarity(own, other) for other in others]

    def of_texts(self, texts: Sequence[str]) -> list[list[str]]:
        stems: list[list[str]] = [[] for _ in texts]
        plain = {at: _PREPARED_WORD.findall(it) for at, it in enumerate(texts) if it.isascii()}
        known = self.known.of(chain.from_iterable(plain.values()))
        for at, words in plain.items():
            stems[at] = [known[word] for word in words]
        others = [at for at in range(len(texts)) if at not in plain]
        for place, token in self._tokens([texts[at] for at in others]) if others else ():
            stems[others[place]].append(token)
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
        for place, token in self._tokens(list(words)):
            tokens.setdefault(place, []).append(token or "")  # of a lone mark
        return {
            word: found[0] if len(found := tokens.get(place, [])) == 1 else ""
            for place, word in enumerate(words)
        }


def _read(scratch: sqlite3.Connection) -> list[tuple[int, str]]:
    r"""The tokens there, empty for a lone mark; the last bytes of a broken one as `\xe6`."""
    statement = "SELECT doc, {} FROM tokens"
    try:
        return scratch.execute(statement.format("coalesce(term, '')")).fetchall()
    except sqlite3.OperationalError:  # FTS5 cuts after 32,768 bytes, also within a character
        rows = scratch.execute(statement.format("CAST(coalesce(term, '') AS BLOB)")).fetchall()
        return [(place, token.decode(errors="backslashreplace")) for place, token in rows]


def _form(stem: str, likely: Mapping[str, str]) -> str:
    words = (f"{stem}{ending}" for ending in _ENDINGS)
    return next((word for word in words if likely[word] == stem), "")


def _opened() -> sqlite3.Connection:
    scratch = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    scratch.execute(
        f"""CREATE VIRTUAL TABLE words USING fts5 (word, content = '', tokenize = "{TOKENIZER}")"""
    )
    scratch.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (words, instance)")
    return scratch
