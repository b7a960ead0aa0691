"""What a fault took from those who were promised otherwise: a row for each, in one table."""

from collections.abc import Collection, Hashable, Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from .files import assert_sound
from .process import served

TITLE = "Faults: what was acknowledged, and what was lost"
PROPERTY = "loss"  # of a report: so a row comes from the process that ran the test


Loss = tuple[str, int, int, int, str]
"""A fault, how much was acknowledged, found again and lost, and what else was seen."""


class Losses:
    """The rows that a test tells of. One that has lost something fails as it tells it."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def __call__(
        self, fault: str, *, acknowledged: Collection[Hashable], found: Collection[Hashable],
        remark: str = "",
    ) -> None:  # fmt: skip
        """Tell what was acknowledged, and what of it is found again after the fault."""
        lost = set(acknowledged) - set(found)
        again = len(acknowledged) - len(lost)
        row = (fault, len(acknowledged), again, len(lost), remark)
        self._properties.append((PROPERTY, row))
        assert not lost, f"{fault}: {sorted(map(repr, lost))[:5]} and others are lost"


def found_again(
    losses: Losses, fault: str, path: Path, acknowledged: dict[str, int], remark: str
) -> dict[str, int]:
    """What a service that starts on the file has: all that was acknowledged, and it is sound."""
    with served(path) as (_, http):
        found = {row["content"]: row["id"] for row in http.get("/export").json()["observations"]}
    losses(fault, acknowledged=acknowledged.items(), found=found.items(), remark=remark)
    assert_sound(path, live=len(found))
    return found


@pytest.fixture
def lost(request: pytest.FixtureRequest) -> Losses:
    return Losses(request.node.user_properties)


def told(reports: Iterable[pytest.TestReport]) -> list[Loss]:
    """The rows of all tests, in the order of their names."""
    return [
        cast("Loss", tuple(values))
        for report in sorted(reports, key=lambda report: report.nodeid)
        if report.when == "call"
        for name, values in report.user_properties
        if name == PROPERTY and isinstance(values, list | tuple)
    ]


def table(losses: Collection[Loss]) -> Iterator[str]:
    """The lines of the table."""
    width = max(len(fault) for fault, *_ in losses)
    yield f"{'fault':{width}}  acknowledged  found again  lost"
    for fault, acknowledged, found, lost, remark in losses:
        yield f"{fault:{width}}  {acknowledged:12,}  {found:11,}  {lost:4,}  {remark}".rstrip()
