"""The rules in an agent's manifest: where they stand, and what each of their fields may be."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from . import rules
from .rules import FROM_ARGUMENTS, InjectRule, Pattern, SaveRule, quoted

MOST = 100  # faults in one message
DEEPEST = 100  # levels
MOST_NODES = 50_000  # texts, lists and mappings, which take two to three seconds to read
STANDARD = "tag:yaml.org,2002:"
MERGE = f"{STANDARD}merge"

_KNOWN = {*yaml.SafeLoader.yaml_constructors, MERGE, f"{STANDARD}value"}


class TooManyFaults(Exception):
    """Reading ends: the limit of faults is reached."""


class Faults(list[str]):
    """Faults in the order of the text. TooManyFaults is raised with the hundredth."""

    def add(self, path: str, sentence: str) -> None:
        self.append(f"{path}: {sentence}")
        if len(self) == MOST:
            self.append("There may be more faults: the reading ended here.")
            raise TooManyFaults


def documents(text: str, faults: Faults) -> list[Node]:
    """The root of each document; none if the text is not YAML.

    Nothing is made of the nodes, so neither tags nor aliases can do harm: a
    tag that is not YAML's own is a fault, and so is a key that stands twice.
    """
    try:
        loader = _Loader(text, faults)
    except ReaderError as error:
        before = text[: error.position].split("\n")
        position = f"line {len(before)}, column {len(before[-1]) + 1}"
        faults.add(position, f"This is not YAML: it has no character U+{error.character:04X}.")
        return []
    try:
        return list(loader.roots())
    except MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        position = _at(error.problem_mark or error.context_mark)
        faults.add(position, f"This is not YAML: {problem}.")
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
        self._nodes += 1
        if self._nodes > MOST_NODES:
            position = _at(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
            self._faults.add(position, f"This is too long: it has more than {MOST_NODES:,} values.")
            raise TooManyFaults
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None and node.tag not in _KNOWN:
            tag = rules.line(str(node.tag).replace(STANDARD, "!!", 1))
            self._faults.add(_at(node.start_mark), f"The tag {tag} is none of YAML's own.")
        return node

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        mapping = super().compose_mapping_node(anchor)
        keys: set[tuple[str, str]] = set()
        for key in (key for key, _ in mapping.value if isinstance(key, ScalarNode)):
            if (key.tag, key.value) in keys:
                self._faults.add(_at(key.start_mark), f"The key {quoted(key.value)} stands twice.")
            keys.add((key.tag, key.value))
        return mapping


def _at(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


HOOKS, SAVE, INJECT = "toolHooks", "memorySaveRules", "contextInjectTools"
SAVE_FIELDS = ("tool", "matchOutput", "matchArgs", "type", "scope")
INJECT_FIELDS = ("tool", "query", "limit")
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

    def refuse(self, sentence: str) -> None:
        self.faults.add(self.path or f"line {self.line}", sentence)

    def below(self, step: str, node: Node) -> "Spot":
        return Spot(node, f"{self.path}{rules.line(step)}".removeprefix("."), self.faults)

    def fields(self) -> dict[str, "Spot"]:
        """A mapping's fields by name, with those that `<<` merges."""
        nodes: dict[str, Node] = {}
        for key, value in self._pairs():
            if _tag(key) == "str":
                nodes.setdefault(key.value, value)
            else:
                self.refuse(f"The name of a field must be text, not {_kind(key)}.{_quoted(key)}")
        return {name: self.below(f".{name}", node) for name, node in nodes.items()}

    def present_fields(self) -> dict[str, "Spot"]:
        """The fields but for those that are null, which is the same as absent."""
        return {name: spot for name, spot in self.fields().items() if not spot.is_null}

    def items(self) -> list["Spot"]:
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
        if fault := rules.fault_of(text, longest):
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
        except rules.WrongPattern as error:
            self.refuse(str(error))
            return None

    def whole_number(self, largest: int) -> int | None:
        number = self.node.value if _tag(self.node) == "int" else ""
        if _PLAIN.fullmatch(number) and int(number) <= largest:
            return int(number)
        self.refuse(f"It must be a whole number from 1 to {largest:,}, without quotes.")
        return None

    def _pairs(self) -> Iterator[tuple[Node, Node]]:
        """Keys and values, a mapping's own before those that it merges, each mapping once."""
        visited: set[int] = set()
        waiting = [self.node]
        while waiting:
            node = waiting.pop()
            if not isinstance(node, MappingNode):
                self.refuse(f"It must be a mapping of fields, not {_kind(node)}.")
            elif id(node) not in visited:
                visited.add(id(node))
                if max(len(visited), len(node.value)) > MOST_FIELDS:
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


Fields = dict[str, Spot]


def rules_in(text: str) -> tuple[list[SaveRule], list[InjectRule], list[str]]:
    """The rules, and each fault with its place: with faults, the rules are not to be used.

    The text is a manifest with `spec.toolHooks`, or has `toolHooks` or the two
    lists at the top. Of several documents one may have rules.
    """
    save, inject, faults = list[SaveRule](), list[InjectRule](), Faults()
    with suppress(TooManyFaults):
        roots = documents(text, faults)
        places = [hooks for root in roots for hooks in _hooks_in(Spot(root, "", faults))]
        for _, fields in places:
            save += filter(None, map(_save_rule, _items(fields, SAVE)))
            inject += filter(None, map(_inject_rule, _items(fields, INJECT)))
        if len(places) > 1:
            lines = " and ".join(str(line) for line, _ in places)
            faults.add(HOOKS, f"Hooks are of one agent; these stand on the lines {lines}.")
    return save, inject, faults


def _hooks_in(root: Spot) -> list[tuple[int, Fields]]:
    """Where a document has hooks, or could have: lines and fields. The rest is the platform's."""
    if root.is_null:
        return []
    fields = root.present_fields()
    spec = fields["spec"].present_fields() if "spec" in fields else {}
    places = [(it[HOOKS].line, it[HOOKS].present_fields()) for it in (spec, fields) if HOOKS in it]
    for _, hooks in places:
        _refuse_lookalikes(hooks, (SAVE, INJECT))
    _refuse_lookalikes(spec, (HOOKS,))
    _refuse_lookalikes(fields, (HOOKS, SAVE, INJECT))
    for name in (SAVE, INJECT):
        if name in spec:
            spec[name].refuse(f"It belongs below spec.{HOOKS}.")
    is_agent = "kind" in fields and fields["kind"].node.value == "Agent"
    if SAVE in fields or INJECT in fields or (is_agent and not places):
        places.append((root.line, fields))
    return places


def _save_rule(spot: Spot) -> SaveRule | None:
    fields = _known(spot, SAVE_FIELDS)
    if not isinstance(spot.node, MappingNode):
        return None
    tool = _tool(spot, fields)
    output = fields["matchOutput"].pattern() if "matchOutput" in fields else None
    arguments = _patterns(fields)
    type_ = _word(fields, "type", rules.LONGEST_TYPE) or rules.TYPE
    scope = _word(fields, "scope", rules.LONGEST_SCOPE) or rules.SCOPE
    if tool is None:
        return None
    return SaveRule(tool=tool, match_output=output, match_args=arguments, type=type_, scope=scope)


def _inject_rule(spot: Spot) -> InjectRule | None:
    fields = _known(spot, INJECT_FIELDS)
    if not isinstance(spot.node, MappingNode):
        return None
    tool = _tool(spot, fields)
    query = _query(spot, fields)
    limit = fields["limit"].whole_number(rules.MOST_RESULTS) if "limit" in fields else rules.LIMIT
    if tool is None or query is None or limit is None:
        return None
    return InjectRule(tool=tool, query=query, limit=limit)


def _tool(spot: Spot, fields: Fields) -> str | None:
    if "tool" in fields:
        return fields["tool"].text(rules.LONGEST_TOOL)
    spot.below(".tool", spot.node).refuse("The name of the tool is missing.")
    return None


def _query(spot: Spot, fields: Fields) -> str | None:
    if "query" not in fields:
        missing = spot.below(".query", spot.node)
        missing.refuse(f"It is missing: {FROM_ARGUMENTS}, or the words to search for.")
        return None
    query = fields["query"].text()
    if query and query != FROM_ARGUMENTS and close_to(query, (FROM_ARGUMENTS,)):
        fields["query"].refuse(f"Did you mean {FROM_ARGUMENTS}?")
        return None
    return query


def _word(fields: Fields, name: str, longest: int) -> str | None:
    """A field that has a default: an empty value counts as absent, as on the platform."""
    if name not in fields or fields[name].node.value == "":
        return None
    return fields[name].text(longest)


def _patterns(fields: Fields) -> dict[str, Pattern]:
    arguments = fields["matchArgs"].fields() if "matchArgs" in fields else {}
    patterns = {name: spot.pattern() for name, spot in arguments.items()}
    return {name: pattern for name, pattern in patterns.items() if pattern}


def _items(fields: Fields, name: str) -> list[Spot]:
    return fields[name].items() if name in fields else []


def _known(spot: Spot, known: tuple[str, ...]) -> Fields:
    """The fields, each that there is not with a fault."""
    fields = spot.present_fields()
    _refuse_lookalikes(fields, known, f"The fields are {', '.join(known)}.")
    return fields


def _refuse_lookalikes(fields: Fields, known: tuple[str, ...], otherwise: str = "") -> None:
    for name, spot in fields.items():
        if name not in known:
            meant = close_to(name, known)
            if hint := f"Did you mean {meant}?" if meant else otherwise:
                spot.refuse(f"There is no such field. {hint}")
