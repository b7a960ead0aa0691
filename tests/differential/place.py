"""Where a play happens: who is asked, chance, words, and the time."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

from ..support.service import START
from .steps import RESTART, Answer, Headers
from .words import Words

T = TypeVar("T")

# Whole seconds, so that nothing ends between two requests of one instant.
PASSES = [1, 1, 1, 30, 60, 600, 1_000, 3_600, 90_000, 86_400 * 3, 86_400 * 8]


class Asking(Protocol):
    """Who is asked."""

    def ask(
        self, method: str, path: str, body: object = None, headers: Headers | None = None
    ) -> Answer: ...

    def do(self, **step: Any) -> Answer: ...


class Place:
    """Requests, some of which are sent twice or in another's name."""

    def __init__(self, asking: Asking, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self.words = Words(self.chance)
        self.now = START
        self.ask, self._do = asking.ask, asking.do
        self._keys: list[str] = []

    def look(self, path: str, **query: object) -> Answer:
        """The answer to a read with what of the query is not None."""
        given = {name: value for name, value in query.items() if value is not None}
        return self.ask("GET", f"{path}?{urlencode(given, errors='surrogatepass')}")

    def write(
        self, method: str, path: str, body: object = None, headers: Headers | None = None
    ) -> Answer:
        """The answer to a write, perhaps with an idempotency key, perhaps sent again."""
        if self.is_rare(0.85):
            return self.ask(method, path, body, headers)
        if not self._keys or self.is_rare(0.7):
            self._keys.append(f"key-{len(self._keys)}")
        name = self.choice(["Idempotency-Key"] * 4 + ["X-Idempotency-Key"])
        keyed = (headers or {}) | {name: self.choice(self._keys)}
        if self.is_rare(0.4):
            self.ask(method, path, body, keyed)
        return self.ask(method, path, body, keyed)

    def change(self, work: str, project: str, other: str) -> None:
        """Rename a project, or merge it into another."""
        self._do(method=work, path=f"{project} {other}")

    def wait(self) -> None:
        seconds = self.choice(PASSES)
        self._do(seconds=seconds)
        self.now += timedelta(seconds=seconds)
        self.ask("GET", "/v1/host/agentops-memory/events?limit=1")  # what is due fires now

    def restart(self) -> None:
        """Sometimes: it takes longer than a request."""
        if self.is_rare(0.4):
            self._do(method=RESTART)

    def soon(self) -> str:
        """An instant that comes, or sometimes one that has passed."""
        seconds = self.choice([*PASSES, 86_400 * 40, -60])
        return rendered(self.now + timedelta(seconds=seconds))

    def past(self) -> str:
        return rendered(self.now - timedelta(seconds=self.choice(PASSES)))

    def choice(self, of: Sequence[T]) -> T:
        return self.chance.choice(of)

    def some(self, of: Sequence[T], most: int = 3) -> list[T]:
        return self.chance.sample(of, min(len(of), self.chance.randint(0, most)))

    def late(self, held: Sequence[T], other: T) -> T:
        """One of those that were given, more often a late one; sometimes another."""
        late = [*held][-12:]
        return self.choice([*late * 4, *held, other])

    def is_rare(self, share: float = 0.1) -> bool:
        return self.chance.random() < share

    def maybe(self, share: float, **fields: object) -> dict[str, object]:
        """Each of the fields with that probability."""
        return {name: value for name, value in fields.items() if self.is_rare(share)}


def rendered(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def part(text: str) -> str:
    """A part of a path or of a query."""
    return quote(text, safe="")
