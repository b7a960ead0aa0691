"""The functions that SQL calls: the index's text, the same on both of its sides, and access."""

import json
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

from ....domain.model.access import Patterns
from ....domain.model.space import Project
from ....domain.text.features import ALL, INDEXED, Feature, Features
from ....domain.text.neighbours import borrowed, borrows
from ....domain.text.normalization import INDEX_FORMAT, fingerprint, indexed, plain_words
from ....domain.text.spelling import is_compared
from .errors import decoded
from .stems import TOKENIZER, Stems
from .table import tag_tuple


def registered(database: sqlite3.Connection, stems: Stems, features: Features = ALL) -> None:
    """Make the functions known to a connection. All are pure.

    Those that take what rows hold take its bytes: of a text that is no UTF-8, SQLite's
    adapter could not make a string.
    """
    functions: dict[str, tuple[int, Callable[..., str | int]]] = {
        "indexed_text": (1, lambda text: indexed(decoded(text), features)),
        "indexed_tags": (1, lambda tags: _indexed_tags(decoded(tags), features)),
        "borrows": (1, lambda content: borrows(decoded(content), features)),
        "borrowed": (
            2,
            lambda *texts: indexed(borrowed(map(decoded, filter(None, texts))), features),
        ),
        "fingerprint_of": (4, _fingerprint),
        "forms": (1, lambda text: _array(_compared(stems, plain_words(text)).values())),
        "acted_on": (2, _acted_on),
        "forms_of": (1, lambda words: json.dumps(_compared(stems, json.loads(words)))),
    }
    for name, (arguments, function) in functions.items():
        database.create_function(name, arguments, function, deterministic=True)
    own = rules(features)
    database.create_function("own_rules", 0, lambda: own, deterministic=True)


def rules(features: Features = ALL) -> str:
    """What the index's words depend on; an index by other rules is built anew."""
    without = sorted(INDEXED - features)
    parts = [f"format {INDEX_FORMAT}", f"Unicode {unicodedata.unidata_version}", TOKENIZER]
    return ", ".join([*parts, *(f"without {feature}" for feature in without)])


def _fingerprint(key: bytes | None, *said: bytes) -> int:
    return fingerprint(None if key is None else decoded(key), *map(decoded, said))


def _acted_on(names: str, project: bytes | None) -> bool:
    """Whether patterns match a project; they match no store, which has none."""
    return project is not None and _patterns(names).match(Project(decoded(project)))


@lru_cache(256)
def _patterns(names: str) -> Patterns:
    return Patterns(tuple(json.loads(names)))


def _compared(stems: Stems, words: Iterable[str]) -> dict[str, str]:
    forms = stems.forms(words)
    return {word: form if is_compared(form) else "" for word, form in forms.items()}


def _array(forms: Iterable[str]) -> str:
    return json.dumps(sorted(set(forms) - {""}))


def _indexed_tags(tags: str, features: Features) -> str:
    return indexed("\n".join(tag_tuple(tags)), features) if Feature.TAGS in features else ""
