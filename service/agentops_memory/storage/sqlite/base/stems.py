"""Words as the full-text index keeps them: asked of FTS5 itself, and remembered."""

import sqlite3
from collections.abc import Iterable
from itertools import islice

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
KNOWN = 16_384  # words whose stems are remembered by a connection


class Stems:
    """What words are in the index, by a full-text table in memory; opened when first asked."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._scratch: sqlite3.Connection | None = None

    def forms(self, words: Iterable[str]) -> dict[str, str]:
        """For each word what to look for to find its stem, the same for all that share it.

        That is the stem itself, or the shortest word found that has it; the empty
        string for a word that the index takes apart.
        """
        stems = self._of(words)
        again = self._of(filter(None, stems.values()))
        return {
            word: stem if not stem or again[stem] == stem else self._form(stem)
            for word, stem in stems.items()
        }

    def close(self) -> None:
        """Give up the table; asking again opens another."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _form(self, stem: str) -> str:
        # Stemming "nois" again gives "noi", and "noise" gives "nois".
        likely = self._of([f"{stem}e", f"{stem}ed"])
        return next((form for form, found in likely.items() if found == stem), "")

    def _of(self, words: Iterable[str]) -> dict[str, str]:
        """The stem of each word; the empty string if there is not just one."""
        wanted = dict.fromkeys(words)
        if unknown := [word for word in wanted if word not in self._stems]:
            self._stems |= self._asked(unknown)
        stems = {word: self._stems[word] for word in wanted}
        for forgotten in list(islice(self._stems, max(len(self._stems) - KNOWN, 0))):
            del self._stems[forgotten]
        return stems

    def _asked(self, words: list[str]) -> dict[str, str]:
        if self._scratch is None:
            self._scratch = _opened()
        rows = enumerate(words)
        tokens: dict[int, list[str]] = {}
        self._scratch.execute("BEGIN")
        self._scratch.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", rows)
        for place, token in self._scratch.execute("SELECT doc, term FROM tokens"):
            tokens.setdefault(place, []).append(token)
        self._scratch.execute("ROLLBACK")
        return {word: _only(tokens.get(place, [])) for place, word in enumerate(words)}


def _only(tokens: list[str]) -> str:
    return tokens[0] if len(tokens) == 1 else ""


def _opened() -> sqlite3.Connection:
    scratch = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    scratch.execute(
        f"""CREATE VIRTUAL TABLE words USING fts5 (word, content = '', tokenize = "{TOKENIZER}")"""
    )
    scratch.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (words, instance)")
    return scratch
