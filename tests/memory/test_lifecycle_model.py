"""Whatever is done to memories with a life, in whatever order: the service and a model agree."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.memory.memory import MAX_PINNED

from ..support.engines import is_postgresql
from ..support.files import assert_index_is_whole
from ..support.requirements import requirement
from ..support.service import START, Service, observation, serving
from .test_expiry_swept import index_swept

WINDOW, SOON = timedelta(minutes=15), timedelta(days=7)
Fields = dict[str, Any]
Refusal = int  # a status


@dataclass(kw_only=True)
class Row:
    """A memory; `holds` says that no other took its key while it was expired."""

    id: int
    space: tuple[str, str]
    text: str
    first: str  # its text at revision 1
    created: datetime
    key: str | None = None
    holds: bool = True
    end: datetime | None = None
    pinned: datetime | None = None
    review: datetime | None = None
    deleted: bool = False
    older: set[int] = field(default_factory=set)


class Model:
    """Every memory of some projects, and the instant."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.rows: dict[int, Row] = {}
        self.last = 0  # the id that was given last

    def save(
        self, space: tuple[str, str], text: str, given: Fields, id_: int
    ) -> Refusal | tuple[str, int]:
        """What is answered; a new memory gets the id."""
        older = self._older(space, given.get("supersedes", []))
        if isinstance(older, int):
            return older
        key = given.get("key")
        held = next((it for it in self._of(space) if it.key == key and key and it.holds), None)
        twins = [
            it for it in self._of(space)
            if key is it.key is None and it.text == text and it.created >= self.now - WINDOW
        ]  # fmt: skip
        twin = max(twins, key=lambda it: (it.created, it.id), default=None)
        row = held or twin
        after = row or Row(id=id_, space=space, text=text, first=text, created=self.now, key=key)
        changed = self._changed(after, given)
        if twin:
            ends = after.end, self._end(given)
            changed["end"] = None if None in ends else max(filter(None, ends))
        links = after.older | older
        if self._refuses(row, after, changed) or self._circles(after.id, links):
            return 409
        vars(after).update(changed, older=links, text=text)
        if row is None:
            self.last, self.rows[after.id] = after.id, after
            self._take_key(after)
        return ("deduplicated" if twin else "updated" if held else "created"), after.id

    def change(self, id_: int, given: Fields) -> Refusal:
        row = self.rows.get(id_)
        if row is None or row.deleted:
            return 404
        older = self._older(row.space, given["supersedes"]) if "supersedes" in given else row.older
        if isinstance(older, int):
            return older
        if self._circles(id_, older):
            return 409
        changed = self._changed(row, given)
        unnamed = self._changed(row, {})
        shown = {it for it in row.older if not self.rows[it].deleted}
        if changed == unnamed and older in (shown, row.older):
            row.older = older
            return 200
        if self._refuses(row, row, changed):
            return 409
        vars(row).update(changed, older=older)
        self._take_key(row)
        return 200

    def confirm(self, id_: int) -> Refusal:
        row = self.rows.get(id_)
        if row is None or row.deleted:
            return 404
        vars(row).update(self._changed(row, {}))
        return 200

    def restore(self, id_: int) -> Refusal:
        row = self.rows.get(id_)
        if row is None:
            return 404
        changed = self._changed(row, {})
        if self._refuses(row, row, changed | {"deleted": False}):
            return 409
        vars(row).update(changed, deleted=False, text=row.first)
        self._take_key(row)
        return 200

    def delete(self, id_: int) -> None:
        if id_ in self.rows:
            self.rows[id_].deleted = True

    def erase(self, id_: int) -> None:
        self.rows.pop(id_, None)
        for row in self.rows.values():
            row.older.discard(id_)

    def is_expired(self, row: Row) -> bool:
        return row.end is not None and row.end <= self.now

    def is_live(self, row: Row) -> bool:
        return not row.deleted and not self.is_expired(row)

    def newer(self, row: Row) -> list[int]:
        """The live ones that supersede it."""
        return sorted(it.id for it in self.live() if row.id in it.older)

    def live(self) -> list[Row]:
        return [it for it in self.rows.values() if self.is_live(it)]

    def listed(self, project: str) -> list[Row]:
        return [it for it in self.live() if it.space[0] == project]

    def found(self, project: str, *, superseded: bool = False) -> list[Row]:
        """What a search with a word of all finds: the project's own and the global ones."""
        seen = [it for it in self.live() if it.space[0] == project or it.space[1] == "global"]
        return [it for it in seen if superseded or not self.newer(it)]

    def pins(self, project: str, limit: int) -> list[Row]:
        """The first of a context, at most half of it."""
        pinned = [(it.pinned, it.id, it) for it in self.found(project) if it.pinned]
        return [it for *_, it in sorted(pinned)][: (limit + 1) // 2]

    def reviews(self, project: str) -> list[tuple[str, int]]:
        due = []
        for row in self.listed(project):
            if not self.newer(row):
                if row.review and row.review <= self.now:
                    due.append(("review_due", row.id))
                if row.end and row.end <= self.now + SOON:
                    due.append(("expires_soon", row.id))
        return sorted(due)

    def _of(self, space: tuple[str, str]) -> list[Row]:
        return [it for it in self.live() if it.space == space]

    def _older(self, space: tuple[str, str], ids: list[int]) -> set[int] | Refusal:
        for id_ in ids:
            row = self.rows.get(id_)
            if row is None or row.deleted or row.space[0] != space[0]:
                return 404
            if row.space[1] != space[1]:
                return 409
        return set(ids)

    def _circles(self, id_: int, older: set[int]) -> bool:
        reached, to_see = set[int](), set(older)
        while to_see:
            reached |= to_see
            to_see = {far for it in to_see for far in self.rows[it].older if it != id_} - reached
        return id_ in reached

    def _end(self, given: Fields) -> datetime | None:
        if "ttl" in given:
            return self.now + timedelta(seconds=given["ttl"])
        end: datetime | None = given.get("expires_at")
        return end

    def _changed(self, row: Row, given: Fields) -> Fields:
        """The fields after a change: a review that has passed is done unless it is named."""
        is_ended = "ttl" in given or "expires_at" in given
        is_due = row.review is not None and row.review <= self.now
        review = given.get("review_at", None if is_due else row.review)
        pinned = given.get("pinned", row.pinned is not None)
        return {
            "end": self._end(given) if is_ended else row.end,
            "pinned": (row.pinned or self.now) if pinned else None,
            "review": review,
        }

    def _refuses(self, before: Row | None, row: Row, changed: Fields) -> bool:
        """Whether it would find its key taken when it is live again, or be one pin too many."""
        after = Row(**{**vars(row), **changed})
        if not self.is_live(after):
            return False
        was_live = before is not None and self.is_live(before)
        if before and not was_live and any(
            it.key == row.key and it.holds and row.key for it in self._of(row.space)
        ):  # fmt: skip
            return True
        if not after.pinned or (was_live and row.pinned):
            return False
        is_global = row.space[1] == "global"
        pins = [
            it for it in self.live()
            if it.pinned and (it.space[1] == "global" if is_global else it.space == row.space)
        ]  # fmt: skip
        return len(pins) >= MAX_PINNED

    def _take_key(self, row: Row) -> None:
        """One that is live has its key, and no other of its space."""
        if row.key and self.is_live(row):
            row.holds = True
            for it in self.rows.values():
                if it is not row and it.space == row.space and it.key == row.key:
                    it.holds = False


STEPS = 80
MOVES = (timedelta(seconds=1), timedelta(seconds=59), timedelta(minutes=20), timedelta(days=3))
ENDS = (timedelta(0), timedelta(seconds=60), timedelta(minutes=20), timedelta(days=6))
PROJECTS = ("demo", "other")


class Play:
    """A service and its model, to which the same is done; what was done last is kept."""

    def __init__(self, service: Service, seed: int) -> None:
        self.service, self.model = service, Model(START)
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self.done: list[str] = []
        self.taken_out: set[int] = set()  # of the index, by the last sweep

    def step(self) -> None:
        deeds: list[Callable[[], None]] = [
            self.save, self.save, self.save, self.change, self.change, self.delete,
            self.restore, self.confirm, self.move_clock, self.sweep,
        ]  # fmt: skip
        self.chance.choice(deeds)()
        self.compare(self.chance.choice(PROJECTS))

    def save(self) -> None:
        space = self.chance.choice(PROJECTS), self.chance.choice(["project", "project", "global"])
        text = f"heron {self.chance.randrange(9)}"
        key = self.chance.choice([None, None, "k/a", "k/b"])
        given = self.fields(space) | ({"key": key} if key else {})
        self.done.append(f"save {space} {text} {given}")
        body = _body(given) | {"project": space[0], "scope": space[1], "session_id": space[0]}
        answer = self.service.http.post("/observations", json=observation(text, **body))
        told = answer.json()
        status = answer.status_code
        saved = (told["action"], told["id"]) if status == 201 else status
        new = self.model.last + 1
        if is_postgresql() and told.get("action") == "created":  # ids ascend, and may have gaps
            new = max(new, told["id"])
        assert saved == self.model.save(space, text, given, new)

    def change(self) -> None:
        id_ = self.any_id()
        row = self.model.rows.get(id_)
        given = self.fields(row.space if row else None)
        for name in ("expires_at", "review_at"):
            if "ttl" not in given and self.chance.random() < 0.2:
                given[name] = None
        given = given or {"pinned": self.chance.random() < 0.5}
        self.done.append(f"change {id_} {given}")
        answer = self.service.http.patch(f"/observations/{id_}", json=_body(given))
        assert answer.status_code == self.model.change(id_, given)

    def delete(self) -> None:
        id_, hard = self.any_id(), self.chance.random() < 0.3
        self.done.append(f"delete {id_} {hard=}")
        path = f"/observations/{id_}" + ("?hard=true" if hard else "")
        assert self.service.http.delete(path).status_code == 204
        (self.model.erase if hard else self.model.delete)(id_)

    def restore(self) -> None:
        id_ = self.any_id()
        self.done.append(f"restore {id_}")
        answer = self.service.http.post(f"/observations/{id_}/restore", json={"revision": 1})
        assert answer.status_code == self.model.restore(id_)

    def confirm(self) -> None:
        id_ = self.any_id()
        self.done.append(f"confirm {id_}")
        answer = self.service.http.post(f"/observations/{id_}/confirm")
        assert answer.status_code == self.model.confirm(id_)

    def move_clock(self) -> None:
        by = self.chance.choice(MOVES)
        self.done.append(f"move {by}")
        self.service.clock.now += by
        self.model.now += by

    def sweep(self) -> None:
        self.done.append("sweep")
        index_swept(self.service, self.model.now)
        assert_index_is_whole(self.service.path)
        self.taken_out = {it.id for it in self.model.rows.values() if self.model.is_expired(it)}

    def any_id(self) -> int:
        return self.chance.choice([*self.model.rows, 999])

    def fields(self, space: tuple[str, str] | None) -> Fields:
        """Some fields of a lifecycle, with values that meet each other."""
        near = [it.id for it in self.model.rows.values() if it.space == space]
        at = self.model.now + self.chance.choice(ENDS)
        every: Fields = {
            "expires_at": at,
            "ttl": self.chance.choice([1, 60, 1200]),
            "pinned": self.chance.random() < 0.7,
            "supersedes": [
                self.chance.choice(near) if near and self.chance.random() < 0.8 else self.any_id()
                for _ in range(self.chance.randrange(3))
            ],
            "review_at": self.model.now + self.chance.choice(ENDS),
        }
        given = {name: it for name, it in every.items() if self.chance.random() < 0.35}
        if {"ttl", "expires_at"} <= given.keys():
            del given["ttl"]
        return given

    def compare(self, project: str) -> None:
        """The lists, counts, searches, contexts and reviews of a project, and some memory."""
        model = self.model
        found = model.found(project)
        assert len(found) < 50  # what a search tells of
        assert self.ids("/observations/recent", project) == _ids(model.listed(project))
        self.compare_search(found, self.ids("/search", project, q="heron"))
        every = self.ids("/search", project, q="heron", superseded="true")
        self.compare_search(model.found(project, superseded=True), every)
        stats = self.ask("/stats", project)
        assert stats["total_observations"] == len(model.listed(project))
        for limit in (1, 4, 50):
            titles = self.titles(project, limit)
            pins = [it.text for it in model.pins(project, limit)]
            assert titles[: len(pins)] == pins
            assert len(titles) == min(limit, len(found))
        assert sorted(titles) == sorted(it.text for it in found)
        items = self.ask("/review", project, limit=100)["items"]
        reasons = [(it["reason"], it["observation"]["id"]) for it in items]
        assert sorted(it for it in reasons if it[0] != "similar") == model.reviews(project)
        self.compare_one(self.any_id())

    def compare_search(self, rows: list[Row], ids: list[int]) -> None:
        """All are found, but for those that wait for a sweep since the clock went back."""
        assert set(ids) <= set(_ids(rows))
        assert set(_ids(rows)) - set(ids) <= self.taken_out

    def compare_one(self, id_: int) -> None:
        answer, row = self.service.http.get(f"/observations/{id_}"), self.model.rows.get(id_)
        assert answer.status_code == (404 if row is None or row.deleted else 200)
        if row is not None and not row.deleted:
            told = answer.json()
            assert told.get("expired", False) is self.model.is_expired(row)
            assert told.get("superseded_by", []) == self.model.newer(row)
            older = sorted(it for it in row.older if not self.model.rows[it].deleted)
            assert told.get("supersedes", []) == older
            assert told.get("pinned", False) is (row.pinned is not None)
            assert (told.get("topic_key"), told["title"]) == (row.key, row.text)
            assert _instant(told.get("expires_at")) == row.end
            assert _instant(told.get("review_at")) == row.review

    def titles(self, project: str, limit: int) -> list[str]:
        told = self.ask("/context", project, query="heron", limit=limit)
        return [it["title"] for it in told["recent_observations"]]

    def ids(self, path: str, project: str, **asked: Any) -> list[int]:
        return sorted(it["id"] for it in self.ask(path, project, limit=50, **asked))

    def ask(self, path: str, project: str, **asked: Any) -> Any:
        answer = self.service.http.get(path, params={"project": project, **asked})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.mark.slow
@requirement("life:1:live", "life:2:exact", "life:4:half", "life:5:hidden", "life:5:back")
@pytest.mark.representative(2)
@pytest.mark.parametrize("seed", range(21))
def test_the_service_and_the_model_agree(path: Path, seed: int) -> None:
    with serving(path) as service:
        play = Play(service, seed)
        try:
            for _ in range(STEPS):
                play.step()
            play.sweep()
        except AssertionError as failure:
            failure.add_note("\n".join([f"step {len(play.done)} of:", *play.done[-12:]]))
            raise


def _body(given: Fields) -> Fields:
    """The fields as JSON has them."""
    told = {name: it.isoformat() if isinstance(it, datetime) else it for name, it in given.items()}
    return {"topic_key" if name == "key" else name: it for name, it in told.items()}


def _instant(told: str | None) -> datetime | None:
    return None if told is None else datetime.fromisoformat(told)


def _ids(rows: list[Row]) -> list[int]:
    return sorted(it.id for it in rows)
