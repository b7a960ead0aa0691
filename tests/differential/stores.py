"""Memory stores in both dialects, each of which works on what the other has made."""

from typing import Any
from urllib.parse import quote

from .place import Place

CLOUD, ANTHROPIC = "/api/v1/cloud/memory_stores", "/anthropic/v1/memory_stores"
PATHS = [
    "notes/a.md", "notes/b.md", "notes/B.md", "notes/é.md", "notes/deep/er/x", "max_connections.md",
    "数据/库.md", "plan", "plan/sub", "100%_x", "notes", "z" * 300, "a//b", "../x", "",
]  # fmt: skip
NAMES = ["Team notes", "team notes", "Straße", "strasse", "x", "", " y ", "n" * 65]
VIEWS = [None, None, "full", "basic", "none"]
PAGES = [None, None, 1, 2, 5, 100, 0]
NOBODY = "0" * 32


class Stores:
    """What is known of stores: their ids, and those of entries and versions, by store."""

    def __init__(self, place: Place, stores: list[str]) -> None:
        self._place = place
        self.stores = stores
        self._entries: dict[str, list[str]] = {}
        self._versions: dict[str, list[str]] = {}
        self._hashes: list[str] = ["0" * 64]
        self._pages: list[str] = []

    def begin(self) -> None:
        for name in ("one", "two", "three"):
            self._make({"name": name})

    def make(self) -> None:
        place = self._place
        self._make({"name": place.choice(NAMES), **place.maybe(
            0.3, description=place.words.text(), metadata={place.words.word(): place.words.word()},
        )})  # fmt: skip

    def change(self) -> None:
        place = self._place
        names: list[str | None] = [*NAMES, None]
        patch = {place.words.word(): place.choice([None, "x"])}
        body = place.maybe(
            0.5, name=place.choice(names), description=place.words.text(), metadata=patch
        )
        place.write("POST", f"{ANTHROPIC}/{self._store()}", body)

    def close(self) -> None:
        """Archive one, or delete it, both rarely."""
        store, prefix = self._store(), self._place.choice([CLOUD, ANTHROPIC])
        if self._place.is_rare(0.4) and len(self.stores) > 2:
            self._place.write("DELETE", f"{prefix}/{store}")
            if store in self.stores:
                self.stores.remove(store)
        else:
            self._place.write("POST", f"{prefix}/{store}/archive")
            self.make()

    def list_stores(self) -> None:
        place = self._place
        if place.is_rare(0.5):
            after = place.choice(["after_id", "before_id"])
            self._list(
                CLOUD, name=place.choice([None, "team", "STRASSE", "\x00"]), **self._times(),
                include_archived=place.choice([None, "true", "nay"]),
                **{after: self._seldom(self._store())},
            )  # fmt: skip
        else:
            archived = place.choice([None, "TRUE", "nay"])
            self._list(ANTHROPIC, include_archived=archived, page=self._page(), **self._times())

    def put(self) -> None:
        place, store, prefix = self._place, self._store(), self._place.choice([CLOUD, ANTHROPIC])
        path = place.choice(PATHS)
        view = f"?view={place.choice(['full', 'basic'])}" if prefix == ANTHROPIC else ""
        body = {"path": path if prefix == CLOUD else f"/{path}", "content": self._content()}
        metadata = place.maybe(0.2, metadata={"a": place.words.word()})
        self._learn(store, place.write("POST", f"{prefix}/{store}/memories{view}", body | metadata))

    def replace(self) -> None:
        place, store = self._place, self._store()
        body = {"content": self._content()} | place.maybe(
            0.3, version=place.choice([1, 1, 2, 3, 0]), content_sha256=place.choice(self._hashes)
        )
        self._learn(
            store, place.write("PUT", f"{CLOUD}/{store}/memories/{self._entry(store)}", body)
        )

    def update(self) -> None:
        place, store = self._place, self._store()
        expected = {"type": "content_sha256", "content_sha256": place.choice(self._hashes)}
        body = place.maybe(
            0.4, content=self._content(), path=f"/{place.choice(PATHS)}", precondition=expected
        )
        path = f"{ANTHROPIC}/{store}/memories/{self._entry(store)}?view=full"
        self._learn(store, place.write("POST", path, body))

    def delete(self) -> None:
        place, store, prefix = self._place, self._store(), self._place.choice([CLOUD, ANTHROPIC])
        sure = f"?expected_content_sha256={place.choice(self._hashes)}" if place.is_rare() else ""
        place.write("DELETE", f"{prefix}/{store}/memories/{self._entry(store)}{sure}")

    def read(self) -> None:
        place, store, prefix = self._place, self._store(), self._place.choice([CLOUD, ANTHROPIC])
        place.look(f"{prefix}/{store}", **place.maybe(0.1, view="full"))
        path = f"{prefix}/{store}/memories/{self._entry(store)}"
        self._learn(store, place.look(path, view=place.choice(VIEWS)))

    def list_entries(self) -> None:
        place, store = self._place, self._store()
        if place.is_rare(0.5):
            prefix = place.choice([None, None, "notes/", "notes", "Notes/", "100%_", "数"])
            self._list(
                f"{CLOUD}/{store}/memories", path_prefix=prefix, **self._times(),
                after_id=self._seldom(self._entry(store)),
                before_id=self._seldom(self._entry(store)),
            )  # fmt: skip
        else:
            self._list(
                f"{ANTHROPIC}/{store}/memories", path_prefix=place.choice([None, "/notes/", "/",
                "x"]),
                depth=place.choice([None, 0, 1, 2]), view=place.choice(VIEWS), page=self._page(),
            )  # fmt: skip

    def list_versions(self) -> None:
        place, store = self._place, self._store()
        one = self._entry(store) if place.is_rare(0.5) else None
        if place.is_rare(0.5):
            answer = self._list(f"{CLOUD}/{store}/versions", entry_id=one)
        else:
            answer = self._list(
                f"{ANTHROPIC}/{store}/memory_versions", memory_id=one, view=place.choice(VIEWS),
                operation=place.choice([None, None, "created", "modified", "deleted", "none"]),
                session_id=self._seldom("x"), page=self._page(), **self._times(),
            )  # fmt: skip
        held = self._versions.setdefault(store, [])
        held += [it["id"] for it in answer if it["id"] not in held]

    def read_version(self) -> None:
        self._place.ask("GET", self._version_at())

    def redact(self) -> None:
        self._place.write("POST", f"{self._version_at()}/redact")

    def search(self) -> None:
        place = self._place
        path = f"{CLOUD}/{self._store()}/search"
        place.look(path, q=place.words.question(), limit=place.choice(PAGES))

    def _make(self, body: dict[str, object]) -> None:
        place = self._place
        answer = place.write("POST", place.choice([CLOUD, ANTHROPIC]), body)
        self.stores += answer.made()[: 6 - len(self.stores)]

    def _list(self, path: str, **query: object) -> list[dict[str, Any]]:
        answer = self._place.look(path, limit=self._place.choice(PAGES), **query)
        if not answer.is_success:
            return []
        told = answer.json()
        if told.get("next_page"):
            self._pages.append(told["next_page"])
        rows: list[dict[str, Any]] = told["data"]
        return [it for it in rows if "id" in it]

    def _learn(self, store: str, answer: Any) -> None:
        if answer.is_success:
            told = answer.json()
            self._entries.setdefault(store, []).append(told["id"])
            self._hashes.append(told["content_sha256"])
            if version := told.get("memory_version_id"):
                self._versions.setdefault(store, []).append(version)

    def _content(self) -> str:
        place = self._place
        return place.choice(["", " "]) if place.is_rare(0.05) else place.words.text(40)

    def _times(self) -> dict[str, Any]:
        place = self._place
        given = {f"created_at[{end}]": place.past() for end in ("gte", "lte")}
        return {name: value for name, value in given.items() if place.is_rare(0.2)}

    def _page(self) -> str | None:
        return self._place.choice(self._pages) if self._pages and self._place.is_rare(0.3) else None

    def _seldom(self, value: str) -> str | None:
        return value if self._place.is_rare(0.15) else None

    def _store(self) -> str:
        return self._place.choice([*self.stores * 8, f"memstore_{NOBODY}"])

    def _entry(self, store: str) -> str:
        return self._place.late(self._entries.get(store, []), f"mem_{NOBODY}")

    def _version_at(self) -> str:
        store = self._store()
        version = self._version(store)
        return self._place.choice(
            [
                f"{CLOUD}/{store}/versions/{version}",
                f"{ANTHROPIC}/{store}/memory_versions/{version}",
            ]
        )

    def _version(self, store: str) -> str:
        return quote(self._place.late(self._versions.get(store, []), f"memver_{NOBODY}"))
