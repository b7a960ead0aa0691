"""A node of a YAML document and where it stands: as text, number, list or fields, or a fault."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .errors import Faults, line, quoted
from .nodes import MERGE, STANDARD
from .patterns import Pattern, WrongPattern
from .rules import fault_of

MOST_FIELDS = 100
MOST_ITEMS = 1_000

_KINDS = {
    "bool": "true or false", "int": "a number", "float": "a number", "timestamp": "a date",
    "null": "nothing", "binary": "bytes",
}  # fmt: skip
_PLAIN = re.compile(r"[1-9][0-9]{0,8}")
_CLOSE = 0.8  # of difflib's ratio: two names that are meant to be one


@dataclass(frozen=True, slots=True)
class Spot:
    """A node, the path that leads to it, and the list in which its faults are gathered.

    What asks for something that is not there tells the fault and returns None,
    or nothing.
    """

    node: Node
    path: str
    faults: Faults

    @property
    def is_null(self) -> bool:
        return _tag(self.node) == "null"

    @property
    def line(self) -> int:
        return self.node.start_mark.line + 1

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, MappingNode)

    def refuse(self, sentence: str) -> None:
        self.faults.add(self.path or f"line {self.line}", sentence)

    def below(self, step: str, node: Node) -> "Spot":
        return Spot(node, f"{self.path}{line(step)}".removeprefix("."), self.faults)

    def fields(self) -> dict[str, "Spot"]:
        """A mapping's fields by name, with those that `<<` merges."""
        nodes: dict[str, Node] = {}
        for key, value in self._pairs():
            if _tag(key) == "str":
                nodes.setdefault(key.value, value)
            else:
                self.refuse(f"The name of a field must be text, not {_kind(key)}.{_quoted(key)}")
        return {name: self.below(f".{name}", node) for name, node in nodes.items()}

    def given(self) -> dict[str, "Spot"]:
        """The fields but for those that are null, which is the same as absent."""
        return {name: spot for name, spot in self.fields().items() if not spot.is_null}

    def items(self) -> list["Spot"]:
        """What a list holds."""
        if not isinstance(self.node, SequenceNode):
            self.refuse(f"It must be a list, not {_kind(self.node)}.")
            return []
        if len(self.node.value) > MOST_ITEMS:
            self.refuse(f"It has more than {MOST_ITEMS:,} items.")
        items = self.node.value[:MOST_ITEMS]
        return [self.below(f"[{index}]", node) for index, node in enumerate(items)]

    def text(self, longest: int | None = None) -> str | None:
        """Text that is not blank."""
        text = self.raw_text()
        if text is None:
            return None
        if fault := fault_of(text, longest):
            self.refuse(fault)
            return None
        return text

    def raw_text(self) -> str | None:
        """Text, blank or not."""
        if _tag(self.node) != "str":
            self.refuse(f"It must be text, not {_kind(self.node)}.{_quoted(self.node)}")
            return None
        return str(self.node.value)

    def pattern(self) -> Pattern | None:
        text = self.raw_text()
        if text is None:
            return None
        try:
            return Pattern(text)
        except WrongPattern as error:
            self.refuse(str(error))
            return None

    def whole_number(self, largest: int) -> int | None:
        """A whole number from 1 on."""
        number = self.node.value if _tag(self.node) == "int" else ""
        if _PLAIN.fullmatch(number) and int(number) <= largest:
            return int(number)
        self.refuse(f"It must be a whole number from 1 to {largest:,}, without quotes.")
        return None

    def _pairs(self) -> Iterator[tuple[Node, Node]]:
        """Keys and values, a mapping's own before those that it merges, each mapping once."""
        seen: set[int] = set()
        waiting = [self.node]
        while waiting:
            node = waiting.pop()
            if not isinstance(node, MappingNode):
                self.refuse(f"It must be a mapping of fields, not {_kind(node)}.")
            elif id(node) not in seen:
                seen.add(id(node))
                if max(len(seen), len(node.value)) > MOST_FIELDS:
                    self.refuse(f"It has more than {MOST_FIELDS} fields.")
                    return
                yield from (pair for pair in node.value if pair[0].tag != MERGE)
                waiting.extend(reversed(_merged(node)))


def close_to(name: str, known: tuple[str, ...]) -> str | None:
    """The name that was meant, if it is written a little differently."""
    plain = {_plain(it): it for it in known}
    close = get_close_matches(_plain(name), plain, n=1, cutoff=_CLOSE)
    return plain[close[0]] if close else None


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _merged(node: MappingNode) -> list[Node]:
    merged = [value for key, value in node.value if key.tag == MERGE]
    return [
        base
        for value in merged
        for base in (value.value if isinstance(value, SequenceNode) else [value])
    ]


def _tag(node: Node) -> str:
    """What YAML takes a scalar for."""
    return node.tag.removeprefix(STANDARD) if isinstance(node, ScalarNode) else ""


def _kind(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return "text" if _tag(node) == "str" else _KINDS.get(_tag(node), "what it is in YAML")


def _quoted(node: Node) -> str:
    """The hint that helps where text was meant."""
    if _tag(node) in ("", "null", "binary"):
        return ""
    return f" Write {quoted(node.value)}, with quotes, if it is meant as text."
