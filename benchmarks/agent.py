"""An agent that never stops: it asks, searches, saves, changes and deletes, at random."""

import json
import random
from collections import deque
from collections.abc import Callable
from itertools import islice

from . import corpus
from .client import Answer, Request, delete, get, patch, post
from .seeding import TYPES

PROJECTS = 20
KEYS = 10  # of a project; each keeps 100 revisions, so that they level off early
SESSIONS = 25  # of an agent
TEXTS = 500  # of an agent, each again and again
MOST = 200  # live observations that an agent holds beside those at keys


class Agent:
    """One of several agents. What it saved without a key is its own, and no other's."""

    def __init__(self, number: int, seed: int, projects: int = PROJECTS) -> None:
        self._number = number
        self._projects = projects
        self._chance = random.Random(f"{seed}/{number}")  # noqa: S311 - a walk, no secret
        source = seed + 10 + number
        self._prompts = corpus.prompts(source, TEXTS) + corpus.sentences(source, TEXTS)
        self._keywords = corpus.keywords(source, TEXTS)
        self._pieces = list(islice(corpus.pieces(source), TEXTS))
        self._saved = 0
        self._last: dict[str, object] = {}
        self._own: deque[int] = deque()  # ids of live observations
        self._deleted: deque[int] = deque()  # ids of those that can still be restored
        self._is_saving = False
        self._weights = [weight for weight, _ in self._mix()]
        self._works = [work for _, work in self._mix()]

    def request(self) -> Request:
        """The next thing that it asks for."""
        (work,) = self._chance.choices(self._works, self._weights)
        return work()

    def hear(self, answer: Answer) -> None:
        """Take note of what was answered."""
        if self._is_saving and answer.is_good:
            saved = json.loads(answer.body)
            if saved["action"] == "created":
                self._own.append(saved["id"])
        self._is_saving = False

    def _mix(self) -> list[tuple[int, Callable[[], Request]]]:
        """In a hundred: 60 reads of context, 10 searches, 20 saves, 5 changes, 5 of sessions."""
        return [
            (60, self._context),
            (10, self._search),
            (10, self._save_at_key),
            (8, self._save_again),
            (2, self._save_new),
            (1, self._amend),
            (4, self._remove),
            (3, self._open_session),
            (2, self._end_session),
        ]

    def _context(self) -> Request:
        query = self._chance.choice(self._prompts)
        return get("/context", project=self._project(), query=query)

    def _search(self) -> Request:
        return get("/search", project=self._project(), q=self._chance.choice(self._keywords))

    def _save_at_key(self) -> Request:
        key = f"soak/{self._chance.randrange(KEYS)}"
        return post("/observations", self._observation() | {"topic_key": key})

    def _save_again(self) -> Request:
        """What was saved last, once more: counted while that lives, else a new one."""
        if not self._last or len(self._own) >= MOST:
            return self._save_new()
        self._is_saving = True
        return post("/observations", self._last)

    def _save_new(self) -> Request:
        if len(self._own) >= MOST:
            return self._remove()
        self._is_saving = True
        self._last = self._observation()
        return post("/observations", self._last)

    def _amend(self) -> Request:
        if not self._own:
            return self._context()
        memory = self._chance.choice(self._own)
        return patch(f"/observations/{memory}", {"content": self._piece().content})

    def _remove(self) -> Request:
        """Erase what was deleted before, or delete the oldest."""
        if self._deleted:
            return delete(f"/observations/{self._deleted.popleft()}?hard=true")
        if not self._own:
            return self._context()
        self._deleted.append(self._own.popleft())
        return delete(f"/observations/{self._deleted[0]}")

    def _open_session(self) -> Request:
        return post("/sessions", {"id": self._session(), "project": self._project()})

    def _end_session(self) -> Request:
        said = [
            {"role": "user", "content": self._chance.choice(self._prompts)},
            {"role": "assistant", "content": self._piece().content},
        ]
        path = f"/sessions/{self._session()}/end?project={self._project()}"
        return post(path, {"messages": said})

    def _observation(self) -> dict[str, object]:
        self._saved += 1
        piece = self._piece()
        return {
            "session_id": self._session(),
            "project": self._project(),
            "type": self._chance.choice(TYPES),
            "title": piece.title,
            "content": f"{piece.content} {self._number}.{self._saved}",
        }

    def _piece(self) -> corpus.Piece:
        return self._chance.choice(self._pieces)

    def _project(self) -> str:
        return f"project-{self._chance.randrange(self._projects)}"

    def _session(self) -> str:
        return f"soak-{self._number}-{self._chance.randrange(SESSIONS)}"
