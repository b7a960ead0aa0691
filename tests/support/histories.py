"""Random histories of projects over HTTP, and questions about them: the same of each seed."""

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

from .process import run
from .service import Service, observation

WORDS = (
    "deploy deploys deployment rollback worker queue retry timeout café naïve 東京都 東京 "
    "max_connections maxConnections max connections HTTPServer v1.2 src/app/main.py went going "
    "noise noises migration postgres sqlite vacuum the of index 42 x \U0001d49c שלום مرحبا"
).split()
TYPOS = ("rolback", "migratoin", "postgers", "noisse", "mx_connections", "deplloy")
PROJECTS = ("heron", "heron-two", "stork", "crane")
SCOPES = ("project", "project", "project", "team", "global")
TENANTS = ("default", "acme")

KEYS = {
    "admin": ("admin", "default", ("*",)), "herons": ("reader", "default", ("heron*",)),
    "some": ("writer", "default", ("stork", "c?ane")), "acme": ("admin", "acme", ("*",)),
    "herons of acme": ("reader", "acme", ("heron*",)),
}  # fmt: skip
"""Role, tenant and projects of those who ask, by name."""

Question = tuple[str, str]
"""The name of the key, and a path."""


class History:
    """Changes by a service, which may be another one later, or by commands beside it."""

    service: Service

    def __init__(self, keys: dict[str, str], seed: int) -> None:
        self._keys = keys
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self._last = dict.fromkeys(TENANTS, 1)

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._keys[key]}"}

    def change(self) -> None:
        """One thing that contexts and searches depend on."""
        self._tenant = self.chance.choice(["default", "default", "acme"])
        deeds: list[Callable[[], object]] = [
            *[self.save] * 7, self.update, self.update, self.delete, self.erase, self.restore,
            self.expire, self.supersede, self.pin, self.pin, self.end, self.import_,
        ]  # fmt: skip
        self.chance.choice(deeds)()

    def change_rarely(self) -> None:
        """What a command does, which takes long; and the erasure of a whole project."""
        self._tenant = self.chance.choice(["default", "default", "acme"])
        self.chance.choice([self.erase_all, self.rename, self.merge, self.save_beside])()

    def question(self) -> Question:
        chance = self.chance
        words = chance.choices([*WORDS, *TYPOS], k=chance.choice([1, 2, 3, 3, 12, 45]))
        text = chance.choice([" ".join(words), ". ".join(words[:6]), " ".join(words) + "?"])
        kind, name = chance.choice([("/context", "query"), ("/search", "q")])
        asked = {"project": chance.choice(PROJECTS), name: text}
        if chance.random() < 0.5:
            asked["limit"] = chance.choice(["1", "5", "20", "99"])
        if chance.random() < 0.2:
            more: list[dict[str, str]] = [
                {"tag": "worker"}, {"scope": "team"}, {"scope": "global"},
                {"exclude_type": "note"}, {"explain": "true"},
            ]  # fmt: skip
            asked |= chance.choice(more)
        encode = chance.choice([quote, quote_plus])
        return chance.choice(list(KEYS)), f"{kind}?{urlencode(asked, quote_via=encode)}"

    def save(self, **fields: object) -> None:
        answer = self._ask("POST", "/observations", self._body() | fields)
        self._last[self._tenant] = max(self._last[self._tenant], answer.get("id", 0))

    def update(self) -> None:
        self._ask("PATCH", f"/observations/{self._id()}", {"content": self._text()})

    def delete(self) -> None:
        self._ask("DELETE", f"/observations/{self._id()}")

    def erase(self) -> None:
        self._ask("DELETE", f"/observations/{self._id()}?hard=true")

    def restore(self) -> None:
        self._ask("POST", f"/observations/{self._id()}/restore", {"revision": 1})

    def expire(self) -> None:
        self.save(ttl=60)
        if self.chance.random() < 0.5:
            self.service.clock.advance(seconds=61)

    def supersede(self) -> None:
        self.save(supersedes=[self._id()])

    def pin(self) -> None:
        change = {"pinned": self.chance.random() < 0.7}
        self._ask("PATCH", f"/observations/{self._id()}", change)

    def end(self) -> None:
        said = {"messages": [{"role": "user", "content": self._text()}]}
        self._ask("POST", f"/sessions/s{self.chance.randrange(4)}/end", said)

    def import_(self) -> None:
        one, other = self.chance.sample(PROJECTS, 2)
        headers = self.headers(self._admin)
        http = self.service.http
        rows = http.get("/export", params={"project": one}, headers=headers).text
        renamed = rows.replace(f'"project":"{one}"', f'"project":"{other}"')
        http.post("/import", content=renamed, headers=headers)

    def erase_all(self) -> None:
        self._ask("DELETE", f"/projects/{self.chance.choice(PROJECTS)}")

    def rename(self) -> None:
        self._command("projects", "rename", *self.chance.sample(PROJECTS, 2))

    def merge(self) -> None:
        self._command("projects", "merge", *self.chance.sample(PROJECTS, 2), "--yes")

    def save_beside(self) -> None:
        project = self.chance.choice(PROJECTS)
        self._command("save", "beside", self._text(), "--project", project)

    @property
    def _admin(self) -> str:
        return "admin" if self._tenant == "default" else self._tenant

    def _body(self) -> dict[str, Any]:
        chance = self.chance
        return observation(
            self._text(), project=chance.choice(PROJECTS), scope=chance.choice(SCOPES),
            type=chance.choice(["note", "decision"]), session_id=f"s{chance.randrange(4)}",
            topic_key=chance.choice([None, None, "a/b", "c"]),
            tags=chance.choices(WORDS, k=chance.randrange(3)),
        )  # fmt: skip

    def _text(self) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.choice([2, 6, 20, 60])))

    def _id(self) -> int:
        return self.chance.randint(1, self._last[self._tenant])

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        headers = self.headers(self._admin)
        answer = self.service.http.request(method, path, json=body, headers=headers)
        assert answer.status_code < 500, answer.text
        told: dict[str, Any] = answer.json() if answer.content else {}
        return told

    def _command(self, *arguments: str) -> None:
        variables = {"MEMORY_DB_PATH": str(self.service.path)}
        done = run(*arguments, "--tenant", self._tenant, variables=variables)
        assert "Traceback" not in done.stderr
