"""What people and agents write, plain and strange, and what they ask with."""

import random
import re
from collections.abc import Callable
from pathlib import Path

from ..support.recall import mistyped

DATA = Path(__file__).parents[1] / "data" / "differential"
PLAIN = """
    queue order orders ordering deploy deployed deploys deployment staging production server cache
    caching token tokens login timeout retry retries retried database connection connections pool
    customer refund invoice invoices payment paid pay shipped shipping went gone children goes
    technology anthology assembly assemblies specced saying apples apple pear plum harvest tree
    running ran runs organisation organization universal university relational conditional
    happy happily happiness disk full fills filled proxy restart restarted noon friday monday
""".split()
JOINING = "the a of to and is was it not in on for with before after who why when how".split()
JOINED = """
    max_connections maxConnections max-connections MaxConnections getUserById get_user_by_id
    HTTPServer parseJSONFile snake_case kebab-case src/app/main.py a/b.c v1.2 v1.2.3 1.2.3 3.14
    10:30 user@example.org https://example.org/a?b=c C++ c# .NET node.js isn't rock'n'roll AT&T
    0xFF 1e5 42 007 x86_64 utf-8
""".split()
STRANGE = (DATA / "strange.txt").read_text(encoding="utf-8").split()
SECRETS = ["password=hunter2", "AKIAIOSFODNN7EXAMPLE", "<private>x</private>", "[BYOK:openai]"]
LONG = [
    "a" * 70, "ä" * 70, "internationalization" * 5, "x1" * 300, "长" * 80, "z" * 1_100, "q" * 3_000,
]  # fmt: skip
TAGS = ["ops", "shop", "éclair", "e\u0301clair", "max_connections", "数据", "due", "x y"]
TYPES = ["decision", "bugfix", "config", "discovery", "note"]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Words:
    """Texts by chance; questions are about what was written before."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._written: list[str] = []

    def word(self) -> str:
        pools = [PLAIN] * 10 + [JOINING] * 4 + [JOINED] * 2 + [STRANGE] * 2
        return self._chance.choice(self._chance.choice(pools))

    def text(self, most: int = 25) -> str:
        """One to some words, in sentences and lines."""
        words = [self.word() for _ in range(self._chance.randint(1, most))]
        if self._is_rare(0.05):
            words.append(self._chance.choice(LONG))
        if self._is_rare(0.04):
            words.append(self._chance.choice(SECRETS))
        if self._is_rare(0.06):
            words *= self._chance.choice([2, 5, 12])
        ends = [" "] * 12 + [". ", "? ", "\n", "。", "; ", "! What "]
        said = "".join(f"{word}{self._chance.choice(ends)}" for word in words).strip()
        self._written.append(said)
        return said

    def title(self) -> str:
        return " ".join(self.word() for _ in range(self._chance.randint(1, 5)))

    def question(self) -> str:
        """Some words of what was written, some others, perhaps misspelt or cut."""
        if not self._written or self._is_rare(0.15):
            return self.text(8)
        asked: list[str] = []
        for _ in range(self._chance.choice([1, 1, 1, 2, 3])):
            words = self._chance.choice(self._written).split() or [""]
            at = self._chance.randrange(len(words))
            asked += [self._changed(word) for word in words[at : at + self._chance.randint(1, 7)]]
            asked.append(
                self._chance.choice(["", "", "?", ".", "\n", "Why", "how many", self.word()])
            )
        return " ".join(asked)

    def _changed(self, word: str) -> str:
        """A word as somebody else would write it."""
        deeds: list[Callable[[str], str]] = [
            lambda it: it, lambda it: it, lambda it: it, lambda it: it, lambda it: it,
            str.upper, str.casefold, self._misspelt, self._misspelt, lambda it: it[:-1],
            lambda it: re.sub(r"[_\-/.]", "", it), lambda it: it[:1],
            lambda it: re.sub(r"(?<=[a-z])(?=[A-Z])", " ", it),
            lambda it: it.replace("_", " "), lambda it: f"{it}*", lambda it: f'"{it}"',
        ]  # fmt: skip
        return self._chance.choice(deeds)(word)

    def _misspelt(self, word: str) -> str:
        return mistyped(word, self._chance, _LETTERS) if len(word) >= 4 else word

    def _is_rare(self, share: float) -> bool:
        return self._chance.random() < share
