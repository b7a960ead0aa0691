"""Records as rows: what is declared of each field is selected, read, and written."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import agentops_memory
from agentops_memory.memory.rows import RowMapper


def _declared() -> Iterator[RowMapper[Any]]:
    for module in walk_packages(agentops_memory.__path__, "agentops_memory."):
        if module.name.split(".")[1] in {"memory", "stores", "openintent", "openwop"}:
            found = vars(import_module(module.name)).values()
            yield from (it for it in found if isinstance(it, RowMapper))


def test_every_record_says_of_each_field_how_it_is_stored() -> None:
    declared = list(_declared())
    assert len(declared) > 10
    assert all(map(str, declared))  # which fails for a field of another type
