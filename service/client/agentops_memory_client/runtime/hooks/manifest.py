"""The rules in an agent's manifest: where they stand, and what each of their fields may be."""

from contextlib import suppress
from dataclasses import dataclass, field

from .errors import Faults, TooManyFaults
from .nodes import documents
from .patterns import Pattern
from .rules import (
    FROM_ARGUMENTS,
    LIMIT,
    LONGEST_SCOPE,
    LONGEST_TOOL,
    LONGEST_TYPE,
    MOST_ASKED,
    SCOPE,
    TYPE,
    InjectRule,
    SaveRule,
)
from .spots import Spot, close_to

HOOKS, SAVE, INJECT = "toolHooks", "memorySaveRules", "contextInjectTools"
SAVE_FIELDS = ("tool", "matchOutput", "matchArgs", "type", "scope")
INJECT_FIELDS = ("tool", "query", "limit")

Fields = dict[str, Spot]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of an agent."""

    save: list[SaveRule] = field(default_factory=list)
    inject: list[InjectRule] = field(default_factory=list)


def rules_in(text: str) -> tuple[Rules, list[str]]:
    """The rules, and each fault with its place: with faults, the rules are not to be used.

    The text is a manifest with `spec.toolHooks`, or has `toolHooks` or the two
    lists at the top. Of several documents one may have rules.
    """
    rules, faults = Rules(), Faults()
    with suppress(TooManyFaults):
        _read(text, rules, faults)
    return rules, faults.messages


def _read(text: str, rules: Rules, faults: Faults) -> None:
    roots = documents(text, faults)
    places = [place for root in roots for place in _places(Spot(root, "", faults))]
    for _, fields in places:
        rules.save.extend(filter(None, map(_save_rule, _items(fields, SAVE))))
        rules.inject.extend(filter(None, map(_inject_rule, _items(fields, INJECT))))
    if len(places) > 1:
        lines = " and ".join(str(line) for line, _ in places)
        faults.add(HOOKS, f"Hooks are of one agent; these stand on the lines {lines}.")


def _places(root: Spot) -> list[tuple[int, Fields]]:
    """Where a document has hooks, or could have: lines and fields. The rest is the platform's."""
    if root.is_null:
        return []
    fields = root.given()
    spec = fields["spec"].given() if "spec" in fields else {}
    found = [(it[HOOKS].line, it[HOOKS].given()) for it in (spec, fields) if HOOKS in it]
    for _, hooks in found:
        _refuse_lookalikes(hooks, (SAVE, INJECT))
    _refuse_lookalikes(spec, (HOOKS,))
    _refuse_lookalikes(fields, (HOOKS, SAVE, INJECT))
    for name in (SAVE, INJECT):
        if name in spec:
            spec[name].refuse(f"It belongs below spec.{HOOKS}.")
    is_agent = "kind" in fields and fields["kind"].node.value == "Agent"
    if SAVE in fields or INJECT in fields or (is_agent and not found):
        found.append((root.line, fields))
    return found


def _save_rule(spot: Spot) -> SaveRule | None:
    fields = _known(spot, SAVE_FIELDS)
    if not spot.is_mapping:
        return None
    tool = _tool(spot, fields)
    output = fields["matchOutput"].pattern() if "matchOutput" in fields else None
    arguments = _patterns(fields)
    type_ = _word(fields, "type", LONGEST_TYPE) or TYPE
    scope = _word(fields, "scope", LONGEST_SCOPE) or SCOPE
    if tool is None:
        return None
    return SaveRule(tool=tool, match_output=output, match_args=arguments, type=type_, scope=scope)


def _inject_rule(spot: Spot) -> InjectRule | None:
    fields = _known(spot, INJECT_FIELDS)
    if not spot.is_mapping:
        return None
    tool = _tool(spot, fields)
    query = _query(spot, fields)
    limit = fields["limit"].whole_number(MOST_ASKED) if "limit" in fields else LIMIT
    if tool is None or query is None or limit is None:
        return None
    return InjectRule(tool=tool, query=query, limit=limit)


def _tool(spot: Spot, fields: Fields) -> str | None:
    if "tool" in fields:
        return fields["tool"].text(LONGEST_TOOL)
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
    """A field that has a default: what is empty is not given, as on the platform."""
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
    fields = spot.given()
    for name, it in fields.items():
        if name not in known:
            meant = close_to(name, known)
            hint = f"Did you mean {meant}?" if meant else f"The fields are {', '.join(known)}."
            it.refuse(f"There is no such field. {hint}")
    return fields


def _refuse_lookalikes(fields: Fields, known: tuple[str, ...]) -> None:
    for name, spot in fields.items():
        if name not in known and (meant := close_to(name, known)):
            spot.refuse(f"There is no such field. Did you mean {meant}?")
