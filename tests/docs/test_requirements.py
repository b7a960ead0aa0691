"""The list of requirements and the tests are tied both ways."""

import re
from pathlib import Path

import pytest

from ..support.requirements import REQUIREMENTS, requirement

_MARK = re.compile(
    r"^@requirement\(([^)]*)\)\s*(?:(?:@[^\n]*|\)|# fmt: skip)\s*)*(?:async )?def test_",
    re.MULTILINE,
)


def test_every_requirement_has_a_test() -> None:
    sources = [path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("test_*.py")]
    marks = [mark for source in sources for mark in _MARK.findall(source)]

    assert {name for mark in marks for name in re.findall(r'"([^"]+)"', mark)} == REQUIREMENTS


def test_a_mark_of_an_unlisted_requirement_is_an_error() -> None:
    with pytest.raises(KeyError):
        requirement("agentops:no-such-thing")
