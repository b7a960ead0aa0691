"""A topic key from a title: the same title has the same key, whoever asks."""

import re
import unicodedata

from ..domain.memories.redactor import MAX_KEY

MOST_WORDS = 6
LITTLE = frozenset(
    "a an and are as at be by for from has have in into is it its of on or our that the their "
    "this to use used uses using was we were will with".split()
)


def suggested_key(type_: str, title: str) -> str:
    """`type/words-of-the-title`, in lower case, without little words; as long as a key may be."""
    words = _words(title)
    telling = [word for word in words if word not in LITTLE] or words
    key = f"{'-'.join(_words(type_)) or 'note'}/{'-'.join(telling[:MOST_WORDS]) or 'untitled'}"
    return key[:MAX_KEY]


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"\w+", folded.replace("_", " "))
