"""A text of YAML as nodes, and the faults of the text itself, each with its line and column."""

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode
from yaml.reader import ReaderError

from .errors import Faults, TooManyFaults, line, quoted

DEEPEST = 100  # levels
MOST_NODES = 50_000  # texts, lists and mappings, which take two to three seconds to read
STANDARD = "tag:yaml.org,2002:"
MERGE = f"{STANDARD}merge"

_KNOWN = {*yaml.SafeLoader.yaml_constructors, MERGE, f"{STANDARD}value"}


def documents(text: str, faults: Faults) -> list[Node]:
    """The root of each document; none if the text is not YAML.

    Nothing is made of the nodes, so neither tags nor aliases can do harm: a
    tag that is not YAML's own is a fault, and so is a key that stands twice.
    """
    try:
        loader = _Loader(text, faults)
    except ReaderError as error:
        faults.add(*_unreadable(text, error))
        return []
    try:
        return list(loader.roots())
    except MarkedYAMLError as error:
        faults.add(*_malformed(error))
    except (YAMLError, ValueError, OverflowError):  # of an escape, or a number, beyond all bounds
        faults.add(_at(loader), "This is not YAML: there is no such character or number.")
    return []


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str, faults: Faults) -> None:
        super().__init__(text)
        self._faults = faults
        self._depth = 0
        self._nodes = 0

    def roots(self) -> Iterator[Node]:
        while self.check_node():
            root = self.get_node()
            if root is not None:
                yield root

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        if self.check_event(AliasEvent):
            return super().compose_node(parent, index)
        if self._depth == DEEPEST:
            mark = parent.start_mark if parent else None
            raise ComposerError(None, None, f"it is nested deeper than {DEEPEST} levels", mark)
        self._count()
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None and node.tag not in _KNOWN:
            tag = line(str(node.tag).replace(STANDARD, "!!", 1))
            self._faults.add(_at(node.start_mark), f"The tag {tag} is none of YAML's own.")
        return node

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            place = _at(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
            self._faults.add(place, f"This is too long: it has more than {MOST_NODES:,} values.")
            raise TooManyFaults

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        mapping = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in mapping.value if isinstance(key, ScalarNode)):
            if (key.tag, key.value) in seen:
                self._faults.add(_at(key.start_mark), f"The key {quoted(key.value)} stands twice.")
            seen.add((key.tag, key.value))
        return mapping


def _malformed(error: MarkedYAMLError) -> tuple[str, str]:
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    return _at(error.problem_mark or error.context_mark), f"This is not YAML: {problem}."


def _unreadable(text: str, error: ReaderError) -> tuple[str, str]:
    before = text[: error.position].split("\n")
    place = f"line {len(before)}, column {len(before[-1]) + 1}"
    return place, f"This is not YAML: it has no character U+{error.character:04X}."


def _at(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
