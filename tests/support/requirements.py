"""What the contracts demand, sentence by sentence, each tied to its tests."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])
LISTED = (Path(__file__).parents[1] / "data" / "requirements.toml").read_text("utf-8")
REQUIREMENTS = {name for contract in tomllib.loads(LISTED).values() for name in contract}


def requirement(*names: str) -> Callable[[Test], Test]:
    """Marks a test of these requirements; a name that is not listed is an error."""
    if unknown := {*names} - REQUIREMENTS:
        raise KeyError(*unknown)
    return lambda test: test
