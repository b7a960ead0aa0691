"""What a misspelt word may have meant, by looking at each word of each text."""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing

from agentops_memory.recall.query import MOST_TERMS, MOST_WORDS, is_one_edit
from agentops_memory.recall.stems import Stems
from agentops_memory.recall.text import indexed

SAID = (
    "worker workers working worked windows window2 widow noise noises noisy database databases "
    "migrated migration max_connections maxConnections HTTPServer v1.2 café cafés naïve 東京都 "
    "bindo bindu bindi binda bindq nose poison queue queues rollback rolled deployments замок "
    "window win32api running using close closed closing hopping node noded noded2"
).split()
_PLAIN = re.compile(r"(?<![^\W_])[^\W\d_]+(?![^\W_])")


def mistyped(word: str, chance: random.Random) -> str:
    """A word with one letter swapped, left out, added or changed; or as it is."""
    word = word.casefold()
    at = chance.randrange(1, len(word)) if len(word) > 1 else 0
    letter = chance.choice("abdeinorsuw2")
    return chance.choice([
        word,
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
    ])  # fmt: skip


def by_hand(words: Sequence[str], texts: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    with closing(Stems()) as stems:
        said = [set(stems.compared.of(_PLAIN.findall(indexed(it))).values()) - {""} for it in texts]
        counts = Counter(form for forms in said for form in forms)
        asked = {word: form for word, form in stems.compared.of(words).items() if form}
    unknown = [it for it in asked.items() if it[1] not in counts][:MOST_WORDS]
    corrections = {}
    for word, form in unknown:
        near = [it for it in sorted(counts) if it[0] == form[0] and is_one_edit(form, it)]
        if len(near) > MOST_TERMS:
            near = sorted(near, key=lambda it: (-counts[it], it))[:MOST_TERMS]
        if near:
            corrections[word] = tuple(near)
    return corrections
