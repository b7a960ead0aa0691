"""A model of lifecycles in plain dictionaries: what a service must answer to the same requests."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from agentops_memory.memory.model.memory import MAX_PINNED

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
