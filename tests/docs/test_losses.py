"""The table of what faults have taken: one row for each, and a loss that fails its test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.losses import Loss, Losses, table

ROOT = Path(__file__).parents[2]


def test_what_is_not_found_again_is_lost_and_fails_the_test_that_tells_of_it() -> None:
    told: list[tuple[str, object]] = []

    with pytest.raises(AssertionError, match="'b'"):
        Losses(told)("a fault", acknowledged=["a", "b"], found={"a", "c"})

    assert told == [("loss", ("a fault", 2, 1, 1, ""))]


def test_each_fault_has_a_line_under_one_heading() -> None:
    losses = [
        Loss(fault="kill -9", acknowledged=1204, found=1204, lost=0, remark="in 3 rounds"),
        Loss(fault="a full disk", acknowledged=7, found=6, lost=1, remark=""),
    ]

    assert [*table(losses)] == [
        "fault        acknowledged  found again  lost",
        "kill -9             1,204        1,204     0  in 3 rounds",
        "a full disk             7            6     1",
    ]


def test_each_fault_in_the_documents_has_its_test() -> None:
    texts = [(ROOT / "docs" / it).read_text("utf-8") for it in ("operations.md", "postgresql.md")]
    sections = [it.partition("## Fault tolerance")[2].partition("\n## ")[0] for it in texts]

    listed = re.findall(r"`(test_\w+)` \|$", "\n".join(sections), re.MULTILINE)

    assert sorted(listed) == sorted(those_that_tell())


def those_that_tell() -> Iterator[str]:
    """The tests that tell what was lost."""
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        text = path.read_text("utf-8")
        for found in ast.parse(text).body if "Losses" in text else []:
            if isinstance(found, ast.FunctionDef) and _tells(found):
                yield found.name


def _tells(test: ast.FunctionDef) -> bool:
    return "lost" in {argument.arg for argument in test.args.args}
