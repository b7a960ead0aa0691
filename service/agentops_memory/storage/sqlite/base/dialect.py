"""What SQLite says in its own way: its dialect, and the functions of ours that its SQL calls."""

import json
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from typing import cast

from ....domain.model.access import Patterns
from ....domain.model.ranking import PRIOR_MEMORIES, PRIOR_WORDS
from ....domain.model.space import Project
from ....domain.text.columns import context, tags_column
from ....domain.text.features import ALL, INDEXED, Feature, Features
from ....domain.text.json_words import words_of
from ....domain.text.normalization import (
    INDEX_FORMAT,
    borrows,
    fingerprint,
    indexed,
    plain_words,
    unified,
)
from ....domain.text.query import STOPWORDS
from ....domain.text.similarity import similarity
from ....domain.text.spelling import is_compared
from ...sql.rows import tag_tuple
from ...sql.table import Connection, Dialect, Table
from .errors import decoded

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
PRIOR_TEXT = " ".join(["\ufe00"] * PRIOR_WORDS)  # a word that no text has: `unified` drops it
_WORD = re.compile(r"[^\W_]+")
_PREPARED_WORD = re.compile("[0-9a-z]+")  # where there is nothing beyond ASCII
_ENDINGS = ("e", "ed")  # of words whose stem is no stem of itself
KNOWN = 16_384  # words whose stems, or forms, are remembered by a connection


def _inserted(connection: Connection, statement: str, parameters: Mapping[str, object]) -> int:
    # RETURNING would double what an INSERT costs.
    cursor = cast(sqlite3.Cursor, connection.execute(statement, parameters))
    return cursor.lastrowid or 0


def _inserted_all(
    connection: Connection, statement: str, rows: Sequence[Mapping[str, object]]
) -> Sequence[int]:
    connection.executemany(statement, rows)
    ((last,),) = connection.execute("SELECT last_insert_rowid()", {})
    return range(last - len(rows) + 1, last + 1)  # nobody else inserts meanwhile


SQLITE = Dialect(
    inserted=_inserted,
    inserted_all=_inserted_all,
    leads="CROSS JOIN",
    hint="INDEXED BY {}".format,
    ids="json_each(:ids) {}".format,
    tags_of="json_each(CASE WHEN json_valid({0}.tags) THEN {0}.tags ELSE '[]' END)".format,
    element="CASE WHEN json_valid({0}) THEN json_extract({0}, '$[{1}]') END".format,
    contains="instr({}, {}) > 0".format,
    acts_on="acted_on(:patterns, CAST({} AS BLOB))".format,
)


class SqliteTable(Table):
    """A table that only SQLite has."""

    _connection: sqlite3.Connection

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sql = SQLITE


def registered(database: sqlite3.Connection, stems: "Stems", features: Features = ALL) -> None:
    """Make the functions known to a connection. All are pure.

    Those that take what rows hold take its bytes: of a text that is no UTF-8, SQLite's
    adapter could not make a string.
    """
    functions: dict[str, tuple[int, Callable[..., str | int]]] = {
        "indexed_text": (1, lambda text: indexed(decoded(text), features)),
        "indexed_value": (1, lambda value: indexed(words_of(decoded(value)), features)),
        "indexed_tags": (1, lambda tags: _indexed_tags(decoded(tags), features)),
        "borrows": (1, lambda content: borrows(decoded(content), features)),
        "borrowed": (
            2,
            lambda *texts: context(map(decoded, filter(None, texts)), features),
        ),
        "fingerprint_of": (4, _fingerprint),
        "forms": (1, lambda text: _distinct(compared(stems, plain_words(text)).values())),
        "acted_on": (2, _acted_on),
        "similarities": (1, lambda texts: json.dumps(stems.similarities(json.loads(texts)))),
    }
    prior, own = PRIOR_MEMORIES if Feature.PRIOR in features else 0, rules(features)
    functions["prior_rows"] = 0, lambda: prior
    functions["prior_text"] = 0, lambda: PRIOR_TEXT
    functions["own_rules"] = 0, lambda: own
    names = json.dumps(sorted(features))
    functions["own_features"] = 0, lambda: names
    for name, (arguments, function) in functions.items():
        database.create_function(name, arguments, function, deterministic=True)


def rules(features: Features = ALL) -> str:
    """What the index's words depend on; an index by other rules is built again."""
    without = sorted(INDEXED - features)
    prior = f"prior {PRIOR_MEMORIES} of {PRIOR_WORDS}"
    parts = [f"format {INDEX_FORMAT}", f"Unicode {unicodedata.unidata_version}", TOKENIZER, prior]
    return ", ".join([*parts, *(f"without {feature}" for feature in without)])


def _fingerprint(key: bytes | None, *said: bytes) -> int:
    return fingerprint(None if key is None else decoded(key), *map(decoded, said))


def _acted_on(names: str, project: bytes | None) -> bool:
    """Whether patterns match a project; they match no store, which has none."""
    return project is not None and _patterns(names).match(Project(decoded(project)))


@lru_cache(256)
def _patterns(names: str) -> Patterns:
    return Patterns(tuple(json.loads(names)))


def compared(stems: "Stems", words: Iterable[str]) -> dict[str, str]:
    """The term of each word; the empty string where there is none."""
    forms = stems.forms(words)
    return {word: form if is_compared(form) else "" for word, form in forms.items()}


def _distinct(forms: Iterable[str]) -> str:
    return json.dumps(sorted(set(forms) - {""}))


@lru_cache(256)
def _indexed_tags(tags: str, features: Features) -> str:
    return tags_column(tag_tuple(tags), features)


class Stems:
    """What words are in the index, by a full-text table in memory; opened when first asked."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._forms: dict[str, str] = {}
        self._scratch: sqlite3.Connection | None = None

    def forms(self, words: Iterable[str]) -> dict[str, str]:
        """For each word what to look for to find its stem, the same for all that share it.

        That is the stem itself, or the shortest word found that has it; the empty
        string for a word that the index takes apart.
        """
        wanted = dict.fromkeys(words)
        if unknown := [word for word in wanted if word not in self._forms]:
            self._forms |= self._found(unknown)
        forms = {word: self._forms[word] for word in wanted}
        _forget(self._forms)
        return forms

    def _found(self, words: Iterable[str]) -> dict[str, str]:
        stems = self.of(words)
        again = self.of(filter(None, stems.values()))
        # Stemming "nois" again gives "noi", and "noise" gives "nois".
        changing = {stem for stem, found in again.items() if stem != found}
        likely = self.of(f"{stem}{ending}" for stem in changing for ending in _ENDINGS)
        forms = {stem: _form(stem, likely) if stem in changing else stem for stem in again}
        return {word: forms.get(stem, "") for word, stem in stems.items()}

    def similarities(self, texts: Iterable[str]) -> list[float]:
        """How alike the first text and each of the others are, by their stems."""
        said = [frozenset(_WORD.findall(unified(text).casefold())) - STOPWORDS for text in texts]
        stem_of = self.of(chain.from_iterable(said))
        own, *others = ({stem_of[word] or word for word in words} for words in said)
        return [similarity(own, other) for other in others]

    def of_texts(self, texts: Sequence[str]) -> list[list[str]]:
        """The stems in each of some prepared texts, in their order."""
        if all(map(str.isascii, texts)):
            words = [_PREPARED_WORD.findall(text) for text in texts]
            with suppress(KeyError):
                known = self._stems
                return [[known[word] for word in said] for said in words]
            stem_of = self.of(chain.from_iterable(words))
            return [[stem_of[word] for word in said] for said in words]
        stems: list[list[str]] = [[] for _ in texts]
        for place, token in self._tokens(list(texts)):
            stems[place].append(token or "")  # a lone mark is a word without letters
        return stems

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def of(self, words: Iterable[str]) -> dict[str, str]:
        """The stem of each word; the empty string for one that the index takes apart."""
        wanted, known = list(words), self._stems
        if unknown := [word for word in wanted if word not in known]:
            known |= self._stemmed(list(dict.fromkeys(unknown)))
        stems = {word: known[word] for word in wanted}
        if len(known) > KNOWN:
            _forget(known)
        return stems

    def _tokens(self, texts: list[str]) -> list[tuple[int, str]]:
        """The tokens of texts, each with the place of its text."""
        if self._scratch is None:
            self._scratch = _opened()
        rows = enumerate(texts)
        self._scratch.execute("BEGIN")
        self._scratch.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", rows)
        tokens = self._scratch.execute("SELECT doc, term FROM tokens").fetchall()
        self._scratch.execute("ROLLBACK")
        return tokens

    def _stemmed(self, words: list[str]) -> dict[str, str]:
        tokens: dict[int, list[str]] = {}
        for place, token in self._tokens(words):
            tokens.setdefault(place, []).append(token)
        return {
            word: found[0] if len(found := tokens.get(place, [])) == 1 else ""
            for place, word in enumerate(words)
        }


def _forget(remembered: dict[str, str]) -> None:
    """Leave the newest of what is remembered."""
    for forgotten in list(islice(remembered, max(len(remembered) - KNOWN, 0))):
        del remembered[forgotten]


def _form(stem: str, likely: Mapping[str, str]) -> str:
    """The first of the likely words that has the stem."""
    words = (f"{stem}{ending}" for ending in _ENDINGS)
    return next((word for word in words if likely[word] == stem), "")


def _opened() -> sqlite3.Connection:
    scratch = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    scratch.execute(
        f"""CREATE VIRTUAL TABLE words USING fts5 (word, content = '', tokenize = "{TOKENIZER}")"""
    )
    scratch.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (words, instance)")
    return scratch
