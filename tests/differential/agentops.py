"""Observations, sessions, recall, transfers and projects, as agents ask for them."""

import json
from typing import Any

from .place import Place, part
from .words import TAGS, TYPES

# More than lie in one group, begun one after another.
PROJECTS = [
    "shop", "tools", "café", "数据", "eins/zwei", "p6", "p7", "p8", "p9", "p10", "p11", "last one",
]  # fmt: skip
SESSIONS = [f"s{number}" for number in range(8)] + ["sitzung/ß"]
KEYS = ["shop/queue", "shop/cache", "auth/token-life", "数据/库", "deploy", "k/%_x", "50% of_all"]
SCOPES = ["project"] * 9 + ["global", "global", "personal"]
FLAGS = ["true", "true", "false", "1", "no", ""]
NOBODY = 999_999
MANY = 230  # more than one transaction imports


class AgentOps:
    """What is known of observations and sessions."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.ids: list[int] = []
        self.stores: list[str] = []  # of another part of the play
        self._erasures: list[str] = []
        self._exported = ""
        self._nexts: list[str] = []

    def begin(self) -> None:
        """The first save of each project, one after another; then many memories at once."""
        for project in PROJECTS:
            self._save(project=project)
        rows = [self._row() for _ in range(MANY)]
        self._place.ask("POST", "/import", {"observations": rows})

    def save(self) -> None:
        self._save()

    def save_alike(self) -> None:
        """The same again, or nearly; perhaps under a topic key."""
        place, title, text = self._place, self._place.words.title(), self._place.words.text(40)
        project, session = self._project(), place.choice(SESSIONS)
        for _ in range(place.chance.randint(2, 3)):
            if place.is_rare(0.4):
                text = f"{text} {place.words.word()}"
            if place.is_rare(0.2):
                text = f" {text.upper()}  "
            self._save(project=project, session_id=session, title=title, content=text, similar=3)

    def amend(self) -> None:
        place, words = self._place, self._place.words
        body = place.maybe(
            0.4, title=words.title(), content=words.text(40), type=place.choice(TYPES),
            tags=place.some(TAGS),
        ) | self._life(0.2)  # fmt: skip
        for name in place.some(["expires_at", "review_at", "title", "pinned"], 1):
            body |= {name: None} if place.is_rare(0.5) else {}
        place.write("PATCH", f"/observations/{self._id()}", body)

    def delete(self) -> None:
        hard = self._place.choice(["", "", "?hard=true"])
        answer = self._place.write("DELETE", f"/observations/{self._id()}{hard}")
        self._erasures += [value for name, value in answer.headers if name == "x-erasure-id"]

    def restore(self) -> None:
        body = {"revision": self._place.choice([1, 1, 1, 2, 3, 0, 99])}
        self._place.write("POST", f"/observations/{self._id()}/restore", body)

    def confirm(self) -> None:
        self._place.write("POST", f"/observations/{self._id()}/confirm")

    def read(self) -> None:
        place, id_ = self._place, self._id()
        path = place.choice([
            f"/observations/{id_}", f"/observations/{id_}/history",
            f"/timeline?observation_id={id_}&before={place.choice([0, 1, 9])}&after=2",
        ])  # fmt: skip
        place.ask("GET", path)

    def list_recent(self) -> None:
        place = self._place
        answer = place.look(
            "/observations/recent", project=self._maybe_project(), limit=place.choice([None, 1, 7,
            300]),
            **self._filters(), before_id=self._id() if place.is_rare(0.3) else None,
        )  # fmt: skip
        if answer.is_success:
            self.ids += [it["id"] for it in answer.json()[:3] if it["id"] not in self.ids]

    def review(self) -> None:
        place = self._place
        reasons = [None, None, "review_due", "expires_soon", "similar", "none"]
        before = place.choice(self._nexts) if self._nexts and place.is_rare(0.4) else None
        answer = place.look(
            "/review", project=self._maybe_project(), reason=place.choice(reasons),
            limit=place.choice([None, 1, 3, 50]), before=before,
        )  # fmt: skip
        if answer.is_success and (follows := answer.json().get("next")):
            self._nexts.append(follows)

    def search(self) -> None:
        place = self._place
        asked = place.choice(KEYS)[:9] if place.is_rare(0.1) else place.words.question()
        place.look(
            "/search", q=asked, project=self._maybe_project(), **self._filters(),
            limit=place.choice([None, None, 1, 3, 50]), **self._explained(),
            superseded=place.choice(FLAGS) if place.is_rare(0.2) else None,
        )  # fmt: skip

    def context(self) -> None:
        place = self._place
        stores = ",".join(place.some(self.stores)) if place.is_rare(0.15) else None
        shared = {"namespaces": "notes,facts", "episodic": "true", "agent": "ada"}
        budget: dict[str, object] = place.maybe(
            0.2, max_tokens=place.choice([0, 20, 200, 2_000]), max_chars=place.choice([9, 400]),
            content_chars=place.choice([1, 40, 5_000, 0]),
        )  # fmt: skip
        place.look(
            "/context", query=None if place.is_rare(0.1) else place.words.question(),
            project=self._maybe_project(0.95), **self._filters(0.1), stores=stores or None,
            limit=place.choice([None, None, 1, 12]), **budget, **self._explained(),
            **(shared if place.is_rare(0.1) else {}), **place.maybe(0.2, ages="true"),
        )  # fmt: skip

    def begin_session(self) -> None:
        body = {"id": self._place.choice(SESSIONS), "project": self._project()}
        self._place.write("POST", "/sessions", body)

    def talk(self) -> None:
        self._place.write("POST", f"{self._session()}/messages", {"messages": self._messages()})

    def end_session(self) -> None:
        body = {"messages": self._messages()} if self._place.is_rare(0.5) else None
        self._place.write("POST", f"{self._session()}/end", body)

    def list_sessions(self) -> None:
        self._place.look(
            "/sessions/recent",
            project=self._maybe_project(),
            limit=self._place.choice([None, 2, 50]),
        )

    def count(self) -> None:
        self._place.look("/stats", project=self._maybe_project())

    def export(self) -> None:
        answer = self._place.look("/export", project=self._maybe_project())
        if answer.is_success:
            self._exported = answer.text

    def take_in(self) -> None:
        """What was exported, perhaps with changes, or what was never here."""
        place = self._place
        dry = place.choice(["", "?dry_run=true"])
        if self._exported and place.is_rare(0.5):
            document = json.loads(self._exported)
            for it in document["observations"]:
                if place.is_rare(0.2):
                    it |= {"content": place.words.text(), "updated_at": place.past()}
                if place.is_rare(0.1):
                    del it["uid"]
        else:
            document = {"sessions": [], "observations": [self._row() for _ in range(25)]}
        place.ask("POST", f"/import{dry}", document)

    def erase_project(self) -> None:
        dry = "&dry_run=true" if self._place.is_rare(0.6) else ""
        name = part(self._place.choice(PROJECTS[5:]))
        answer = self._place.ask("DELETE", f"/projects/{name}?hard=true{dry}")
        if answer.is_success and "id" in answer.json():
            self._erasures.append(answer.json()["id"])

    def move_project(self) -> None:
        """Rename a project, or merge it into another."""
        place = self._place
        names = [it for it in [*PROJECTS[3:], "new"] if " " not in it]
        place.change(
            place.choice(["rename", "merge", "merge"]), place.choice(names), place.choice(names)
        )

    def receipt(self) -> None:
        if self._erasures:
            self._place.ask("GET", f"/erasures/{self._place.choice(self._erasures)}")

    def _save(self, similar: int | None = None, **fields: object) -> None:
        place = self._place
        path = "/observations" if similar is None else f"/observations?similar={similar}"
        answer = place.write("POST", path, self._row() | self._life(0.06) | fields)
        self.ids += [id_ for id_ in answer.made() if id_ not in self.ids]

    def _row(self) -> dict[str, object]:
        place, words = self._place, self._place.words
        return {
            "session_id": place.choice(SESSIONS), "project": self._project(),
            "type": place.choice(TYPES), "title": words.title(), "content": words.text(),
            **place.maybe(0.3, tags=place.some(TAGS)), **place.maybe(0.15,
            topic_key=place.choice(KEYS)),
            **place.maybe(0.3, scope=place.choice(SCOPES)),
        }  # fmt: skip

    def _life(self, share: float) -> dict[str, object]:
        place = self._place
        ends = place.choice(["expires_at", "ttl"])
        return place.maybe(
            share, pinned=place.choice([True, True, False]), review_at=place.soon(),
            supersedes=[self._id() for _ in range(place.chance.randint(1, 2))],
            **{ends: place.soon() if ends == "expires_at" else place.choice([1, 60, 90_000, 0])},
        )  # fmt: skip

    def _filters(self, share: float = 0.2) -> dict[str, Any]:
        place = self._place
        return place.maybe(
            share, type=place.choice(TYPES), tag=place.choice(TAGS), scope=place.choice(SCOPES),
            exclude_type=place.choice(TYPES),
        )  # fmt: skip

    def _explained(self) -> dict[str, Any]:
        return self._place.maybe(0.3, explain="true", why_not=self._id())

    def _messages(self) -> list[dict[str, str]]:
        place = self._place
        roles = ["user", "assistant", "user", "assistant", "tool"]
        return [
            {"role": place.choice(roles), "content": place.words.text(30)}
            for _ in range(place.chance.randint(0, 4))
        ]

    def _session(self) -> str:
        return f"/sessions/{part(self._place.choice([*SESSIONS, 'new']))}"

    def _project(self) -> str:
        return self._place.choice([*PROJECTS[:3] * 4, *PROJECTS, " Shop", "CAFÉ"])

    def _maybe_project(self, share: float = 0.75) -> str | None:
        return self._project() if self._place.is_rare(share) else None

    def _id(self) -> int:
        return self._place.late(self.ids, NOBODY)
