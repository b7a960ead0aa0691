"""The rules in an agent's manifest: where they stand, and every fault in them with its path."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .hooks import INJECT, SAVE, HooksRefused, InjectRule, SaveRule, close_to, printable, quoted

T = TypeVar("T")
Fields = Mapping[object, Any]

HOOKS = "toolHooks"
MERGE = "tag:yaml.org,2002:merge"
NAMES = "The name of a field must be text; write it with quotes, if it is meant as text."
# Of pydantic's kinds of faults; of others its own sentence is plain enough.
SENTENCES = {
    "missing": "It is missing.",
    "tuple_type": "It must be a list.",
    "string_type": "It must be text; write it with quotes, if it is meant as text.",
    "dict_type": "It must be a mapping of fields.",
    "dataclass_type": "It must be a mapping of fields.",
}


class _Loader(yaml.SafeLoader):
    def flatten_mapping(self, node: MappingNode) -> None:
        """Merge what `<<` names: a mapping's own fields go first, then those of the earlier one.

        Each key once, so that no few lines fill the memory; one that the text has twice is an
        error. PyYAML's own differs from version to version.
        """
        pairs: dict[object, tuple[Node, Node]] = {}
        merged = list[Node]()
        for key, value in node.value:
            if key.tag == MERGE:
                merged += value.value if isinstance(value, SequenceNode) else [value]
            elif _name(key) in pairs:
                problem = f"the key {quoted(key.value)} stands twice"
                raise ConstructorError(None, None, problem, key.start_mark)
            else:
                pairs[_name(key)] = key, value
        node.value = [*pairs.values()]  # now: a mapping may merge itself
        for base in merged:
            if not isinstance(base, MappingNode):
                raise ConstructorError(None, None, "only a mapping can be merged", base.start_mark)
            self.flatten_mapping(base)
            pairs = {_name(it[0]): it for it in base.value} | pairs
        node.value = [*pairs.values()]


def _name(key: Node) -> object:
    return (key.tag, key.value) if isinstance(key, ScalarNode) else id(key)


def hooks_in(kind: type[T], text: str) -> T:
    """The hooks; HooksRefused names each fault with its position.

    The text is a manifest with `spec.toolHooks`, or has `toolHooks` or the two
    lists at the top. Of several documents one may have rules.
    """
    faults = list[str]()
    places = [position for it in _documents(text) for position in _places(it, faults)]
    if len(places) > 1:
        faults.append(f"{HOOKS}: Hooks are of one agent; these stand in {len(places)} places.")
    path, fields = places[0] if places else ("", {})
    rules = {
        name: _present(fields[name]) for name in (SAVE, INJECT) if fields.get(name) is not None
    }
    try:
        hooks = TypeAdapter(kind).validate_python(rules)
    except ValidationError as error:
        every = error.errors(include_url=False, include_input=False)
        faults += [f"{path}{_fault(it)}" for it in every]
    if faults:
        raise HooksRefused(*faults)
    return hooks


def _documents(text: str) -> list[object]:
    try:
        return list(yaml.load_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        reason = ", ".join(filter(None, (error.context, error.problem)))
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
            ValueError) as error:  # fmt: skip
        # Of a character that no text has; and of a date, a number or an escape that is none.
        position, reason = "the text", str(error)
    raise HooksRefused(f"{position}: This is not YAML: {printable(' '.join(reason.split()))}.")


def _places(root: object, faults: list[str]) -> Iterator[tuple[str, Fields]]:
    """Where a document has hooks, or could have; the rest is the platform's."""
    fields = _fields(root, "the document", faults)
    spec = _fields(fields.get("spec"), "spec", faults)
    _refuse_lookalikes(fields, "", (HOOKS, SAVE, INJECT), faults)
    _refuse_lookalikes(spec, "spec.", (HOOKS,), faults)
    faults += [f"spec.{it}: It belongs below spec.{HOOKS}." for it in (SAVE, INJECT) if it in spec]
    places = [it for it in (("spec.", spec), ("", fields)) if it[1].get(HOOKS) is not None]
    for parent, those in places:
        hooks = _fields(those[HOOKS], f"{parent}{HOOKS}", faults)
        _refuse_lookalikes(hooks, f"{parent}{HOOKS}.", (SAVE, INJECT), faults)
        yield f"{parent}{HOOKS}.", hooks
    is_bare = fields.get("kind") == "Agent" and not places
    if is_bare or not {SAVE, INJECT}.isdisjoint(fields):
        yield "", fields


def _fields(value: object, path: str, faults: list[str]) -> Fields:
    if isinstance(value, Mapping):
        return value
    if value is not None:
        faults.append(f"{path}: It must be a mapping of fields.")
    return {}


def _refuse_lookalikes(
    fields: Fields, path: str, known: tuple[str, ...], faults: list[str]
) -> None:
    names = [it for it in fields if isinstance(it, str) and it not in known]
    meant = {it: close_to(it, known) for it in names}
    faults += [f"{path}{printable(it)}: There is no such field. Did you mean {meant[it]}?"
               for it in names if meant[it]]  # fmt: skip


def _present(rules: object) -> object:
    """The rules of a list; what is null or, as on the platform, empty counts as absent."""
    if not isinstance(rules, list):
        return rules
    return [
        {name: it for name, it in rule.items()
         if it is not None and not (it == "" and name in ("type", "scope"))}
        if isinstance(rule, Mapping) else rule
        for rule in rules
    ]  # fmt: skip


def _fault(fault: Any) -> str:
    """A fault of pydantic, with its position."""
    loc, kind, sentence = fault["loc"], fault["type"], f"{fault['msg']}."
    if loc[-1] == "[key]" or kind == "invalid_key":  # True is 1 there, so it is not named
        loc, kind, sentence = loc[: -2 if loc[-1] == "[key]" else -1], "", NAMES
    elif kind == "value_error":
        sentence = str(fault["ctx"]["error"])
    elif kind == "unexpected_keyword_argument":
        rule = SaveRule if loc[0] == SAVE else InjectRule
        known = tuple(to_camel(it.name) for it in fields(rule))
        meant = close_to(loc[-1], known)
        hint = f"Did you mean {meant}?" if meant else f"The fields are {', '.join(known)}."
        sentence = f"There is no such field. {hint}"
    steps = (f"[{it}]" if isinstance(it, int) else f".{quoted(it)[1:-1]}" for it in loc)
    return f"{''.join(steps)[1:]}: {SENTENCES.get(kind, sentence)}"
