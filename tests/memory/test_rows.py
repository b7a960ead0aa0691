"""Records as rows: what is declared of each field is selected, read, and written."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from importlib import import_module
from pkgutil import walk_packages
from typing import Annotated, Any

import pytest

import agentops_memory
from agentops_memory.errors import DamagedRow
from agentops_memory.memory.rows import UNSTORED, Column, RowMapper
from agentops_memory.record import Record


class Color(StrEnum):
    RED = "red"


class Rank(IntEnum):
    LOW = 0


@dataclass(frozen=True, slots=True)
class Size:
    width: int
    height: Annotated[int | None, Column("z.tall")] = None


class Thing(Record):
    id: Annotated[str, Column("t.uid")]
    color: Color
    rank: Rank
    is_new: bool
    tags: tuple[str, ...]
    size: Annotated[Size, Column("z.")]
    ends_at: Annotated[datetime | None, Column("l.ends_at", beside=("ends", "l.thing"))] = None
    note: Annotated[str | None, UNSTORED] = None


THINGS = RowMapper(Thing, "things", "t.number", alias="t.")
AT = datetime(2026, 3, 1, tzinfo=UTC)
ROW: tuple[Any, ...] = (7, "a", "red", 0, 1, '["x"]', 3, None, 1_772_323_200_000_000, 9)
THING = Thing(
    id="a", color=Color.RED, rank=Rank.LOW, is_new=True, tags=("x",), size=Size(3), ends_at=AT
)


def test_a_record_is_what_its_row_says() -> None:
    assert str(THINGS) == (
        "t.number, t.uid, t.color, t.rank, t.is_new, t.tags, z.width, z.tall, l.ends_at, l.thing"
    )
    assert THINGS(ROW) == THING
    assert THINGS(ROW).json_bytes() == THING.json_bytes()
    assert THINGS.but("color", "ends_at").count("NULL") == 2


def test_a_record_is_written_as_it_was_read() -> None:
    assert THINGS.values(THING, "t.") == {
        "uid": "a", "color": "red", "rank": 0, "is_new": True, "tags": '["x"]',
    }  # fmt: skip
    assert THINGS.values(THING, "z.") == {"width": 3, "tall": None}


@pytest.mark.parametrize(
    ("at", "value"),
    [(1, 5), (1, None), (2, "blue"), (3, 0.0), (3, 4), (4, 2), (5, b"[]"), (6, -1), (7, "3")],
)
def test_what_a_field_cannot_be_is_a_damaged_row(at: int, value: object) -> None:
    with pytest.raises(DamagedRow) as damage:
        THINGS((*ROW[:at], value, *ROW[at + 1 :]))
    assert (damage.value.table, damage.value.row) == ("things", "7")


def test_what_lies_in_another_row_is_that_row_s_damage() -> None:
    with pytest.raises(DamagedRow) as damage:
        THINGS((*ROW[:8], 1 << 62, 9))
    assert (damage.value.table, damage.value.row) == ("ends", "9")


def _declared() -> Iterator[RowMapper[Any]]:
    for module in walk_packages(agentops_memory.__path__, "agentops_memory."):
        if module.name.split(".")[1] in {"memory", "stores", "openintent", "openwop"}:
            found = vars(import_module(module.name)).values()
            yield from (it for it in found if isinstance(it, RowMapper))


def test_every_record_says_of_each_field_how_it_is_stored() -> None:
    declared = list(_declared())
    assert len(declared) > 10
    assert all(map(str, declared))  # which fails for a field of another type
