"""Tool hooks: rules that save memories after tool calls, and search for memories before them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as checked
from pydantic.functional_validators import AfterValidator, BeforeValidator, PlainValidator
from pydantic_core import PydanticCustomError

from ..contract.models import CLIENT, Noun, T, install_command
from .working_memory import ToolCall, require, utf8

LONGEST_PATTERN = 10_000  # code points
LONGEST_QUOTED = 80  # characters of a text quoted in a message
MOST_RESULTS = 1_000  # memories that one search returns
FROM_ARGUMENTS = "from_tool_args"
SAVE, INJECT = "memorySaveRules", "contextInjectTools"  # the lists of rules in a manifest

Nodes = Mapping[str, Any]  # nodes of YAML by the names of their fields
HOOKS = "toolHooks"
MERGE, TEXT, NULL, MAPPING = (f"tag:yaml.org,2002:{it}" for it in ("merge", "str", "null", "map"))
NAME_IS_TEXT = "The name of a field must be text; write it with quotes, if it is meant as text."
# Messages by pydantic's error type; for other types its own message is plain enough.
MESSAGES = {
    "missing": "It is missing.", "tuple_type": "It must be a list.",
    "string_type": "It must be text; write it with quotes, if it is meant as text.",
    **dict.fromkeys(("dict_type", "dataclass_type"), "It must be a mapping of fields."),
}  # fmt: skip

_SIMILAR = 0.8  # difflib ratio from which a name counts as a misspelling of another
_TITLE_SUBJECT = 80  # code points of a command or path in a title
_CONTENT = 1_000  # code points of an output in a content
_SUBJECTS = ("command", "path")  # names of arguments, the preferred one first
_QUERIES = ("command", "query", "path")
_UNSUPPORTED = re.compile(r"invalid perl operator: \(\?<?[=!]|invalid escape sequence: \\[1-9]")


class HooksRefused(ValueError):
    """The hooks are invalid. `faults` names every fault with its path."""

    @property
    def faults(self) -> tuple[str, ...]:
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.faults)


class WrongPattern(ValueError):
    """RE2 refuses the pattern; the message says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression in RE2 syntax; WrongPattern if it is invalid.

    ImportError, with an install command, if google-re2 is not installed.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise WrongPattern(f"A pattern must be text, not {type(self.text).__name__}.")
        if len(self.text) > LONGEST_PATTERN:
            raise WrongPattern(f"A pattern has at most {LONGEST_PATTERN:,} characters.")
        _compiled(self.text)

    def is_in(self, text: str) -> bool:
        """Whether it matches anywhere in the text; a lone surrogate counts as U+FFFD."""
        return _compiled(self.text).search(utf8(text)) is not None


def _imported(module: str, need: str) -> Any:
    """Import a module of the extra `runtime`; ImportError, with an install command, without it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{need}: {install_command(CLIENT, 'runtime')}") from error


@lru_cache(maxsize=1_000)
def _compiled(text: str) -> Any:
    re2 = _imported("re2", "The patterns of tool hooks need google-re2")
    options = re2.Options()
    options.log_errors = False  # the exception has the message
    options.never_capture = True
    try:
        return re2.compile(utf8(text), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        message = f"RE2 does not take the pattern {quoted(text)} and says {quoted(reason)}."
        lacks = " It has no lookahead, lookbehind or backreference."
        raise WrongPattern(message + lacks * bool(_UNSUPPORTED.match(reason))) from error


def quoted(text: str) -> str:
    """Quote a text for a message: shortened, and on one line."""
    cut = text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}..."
    return f'"{printable(cut)}"'


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def close_to(name: str, known: tuple[str, ...]) -> str | None:
    """Return the known name of which `name` is a misspelling, or None."""
    plain = {it.replace("_", "").lower(): it for it in known}
    written = name.replace("_", "").replace("-", "").lower()
    return next((plain[it] for it in get_close_matches(written, plain, 1, _SIMILAR)), None)


def _visible(text: str) -> str:
    if not text.strip():
        raise ValueError("It is blank.")
    return text


def _query(text: str) -> str:
    if text != FROM_ARGUMENTS and close_to(text, (FROM_ARGUMENTS,)):
        raise ValueError(f"Did you mean {FROM_ARGUMENTS}?")
    return _visible(text)


def _pattern(value: object) -> Pattern:
    if not isinstance(value, str | Pattern):
        raise PydanticCustomError("string_type", "It must be a Pattern.")
    return Pattern(value) if isinstance(value, str) else value


def _without_null(rule: object) -> object:
    """Drop fields of a rule in YAML that are null or, as on the platform, empty."""
    if not isinstance(rule, Mapping):
        return rule
    empty = [name for name in ("type", "scope") if rule.get(name) == ""]
    return {name: it for name, it in rule.items() if it is not None and name not in empty}


# Limits in code points, as in the service.
Tool = Annotated[str, Field(strict=True, max_length=100), AfterValidator(_visible)]  # also a tag
Word = Annotated[str, Field(strict=True, max_length=50), AfterValidator(_visible)]
Searched = Annotated[Pattern, PlainValidator(_pattern)]
Written = Annotated[T, BeforeValidator(_without_null)]
OF_RULES = ConfigDict(
    alias_generator=to_camel, validate_by_name=True, extra="forbid", hide_input_in_errors=True,
    defer_build=True,
)  # fmt: skip


class Capture(Noun):
    """The memory to save after a tool call."""

    type: str
    scope: str
    title: str
    content: str
    tags: tuple[str, ...]


class Question(Noun):
    """The search to run before a tool call."""

    query: str
    limit: int


@checked(frozen=True, slots=True, kw_only=True, config=OF_RULES)
class SaveRule:
    """Saves the output of a tool if it matches, and each argument in `match_args` does.

    ValueError for a field that the service would refuse.
    """

    tool: Tool
    match_output: Searched | None = None
    match_args: Mapping[str, Searched] = field(default_factory=dict)
    type: Word = "discovery"
    scope: Word = "project"

    def capture(self, call: ToolCall, output: str) -> Capture | None:
        """Return the memory of a call that matches, or None if it does not or has no output."""
        if not output.strip() or not (self.match_output is None or self.match_output.is_in(output)):
            return None
        for name, pattern in self.match_args.items():
            value = call.arguments.get(name)
            if not isinstance(value, str) or not pattern.is_in(value):
                return None
        subject, title = _argument(call, _SUBJECTS), f"Auto-captured: {self.tool}"
        start = output[:_CONTENT]
        return Capture(
            type=self.type,
            scope=self.scope,
            title=f"{title} — {subject[:_TITLE_SUBJECT]}" if subject else title,
            # Never blank, which the service would refuse.
            content=start if start.strip() else output.lstrip()[:_CONTENT],
            tags=("auto-capture", "hook", self.tool),
        )


@checked(frozen=True, slots=True, kw_only=True, config=OF_RULES)
class InjectRule:
    """Searches for memories before a tool runs: with its arguments, or with a fixed query.

    ValueError for a field that the service would refuse.
    """

    tool: Tool
    query: Annotated[str, Field(strict=True), AfterValidator(_query)]
    limit: Annotated[int, Field(strict=True, ge=1, le=MOST_RESULTS)] = 3

    def question(self, call: ToolCall) -> Question | None:
        """Return the search, or None if the call has no argument to search with."""
        query = _argument(call, _QUERIES) if self.query == FROM_ARGUMENTS else self.query
        return Question(query=query, limit=self.limit) if query else None


def _argument(call: ToolCall, names: tuple[str, ...]) -> str | None:
    values = (call.arguments.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


@checked(frozen=True, slots=True, kw_only=True, config=OF_RULES)
class ToolHooks:
    """Rules for tools. In each list only the first rule for a tool applies."""

    save_rules: Annotated[tuple[Written[SaveRule], ...], Field(validation_alias=SAVE)] = ()
    inject_rules: Annotated[tuple[Written[InjectRule], ...], Field(validation_alias=INJECT)] = ()

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Read the hooks of an agent's manifest, or of a document with the hooks alone.

        They are in `spec.toolHooks`, or in `toolHooks` or two lists at the top level; no hooks is
        valid. At most one document of the text may have rules. HooksRefused names every fault.
        ImportError, with an install command, if PyYAML or google-re2 is not installed.
        """
        require("The text of hooks", text, str)
        faults = list[str]()
        places = _places(text, faults)
        if len(places) > 1:
            faults.append(f"{HOOKS}: Hooks are of one agent; these stand in {len(places)} places.")
        path, rules = places[0] if places else ("", {})
        try:
            tool_hooks = TypeAdapter(cls).validate_python(rules, by_alias=True, by_name=False)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            faults += [f"{path}{_fault(it)}" for it in errors]
        if faults:
            raise HooksRefused(*faults)
        return tool_hooks

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read the hooks in a YAML file in UTF-8. HooksRefused names the file, too."""
        try:
            return cls.from_yaml(Path(path).read_bytes().decode())
        except UnicodeDecodeError as error:
            raise HooksRefused(f"{path}: Byte {error.start + 1} is not UTF-8.") from error
        except HooksRefused as refused:
            raise HooksRefused(*(f"{path}: {fault}" for fault in refused.faults)) from None

    def capture(self, call: ToolCall, output: str) -> Capture | None:
        """Return the memory to save after a call, or None if no rule saves it.

        TypeError if the output is not text, even without a rule.
        """
        require("The output of a tool", output, str)
        rule = next((it for it in self.save_rules if it.tool == call.name), None)
        return rule.capture(call, output) if rule else None

    def question(self, call: ToolCall) -> Question | None:
        """Return the search to run before the call, or None if no rule has one."""
        rule = next((it for it in self.inject_rules if it.tool == call.name), None)
        return rule.question(call) if rule else None


# Reading the rules in an agent's manifest: where they are, and each fault with its path.


def _loader(yaml: Any, text: str) -> Any:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            """Merge what `<<` names: own fields win, then those of earlier mappings.

            Each key is kept once, so that a short text cannot expand without bound; a repeated key
            is an error. PyYAML's own method differs between versions.
            """
            pairs: dict[object, tuple[yaml.Node, yaml.Node]] = {}
            merged = list[yaml.Node]()
            for key, value in node.value:
                if key.tag == MERGE:
                    merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                elif _name(key) in pairs:
                    problem = f"the key {quoted(key.value)} stands twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                else:
                    pairs[_name(key)] = key, value
            node.value = [*pairs.values()]  # now: a mapping may merge itself
            for base in merged:
                if not isinstance(base, yaml.MappingNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, "only a mapping can be merged", base.start_mark
                    )
                self.flatten_mapping(base)
                pairs = {_name(it[0]): it for it in base.value} | pairs
            node.value = [*pairs.values()]

    return Loader(text)


def _places(text: str, faults: list[str]) -> list[tuple[str, dict[str, object]]]:
    """Return the path and the lists of rules of each place of hooks; note faults."""
    yaml = _imported("yaml", "Tool hooks in YAML need PyYAML")
    try:
        loader, places = _loader(yaml, text), []
        while loader.check_node():
            for path, fields in _hooks(loader, loader.get_node(), faults):
                lists = {it: fields[it] for it in (SAVE, INJECT) if it in fields}
                rules = {name: loader.construct_document(it) for name, it in lists.items()}
                places.append((path, rules))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        reason = ", ".join(filter(None, (error.context, error.problem)))
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
            ValueError) as error:  # fmt: skip
        # A character that YAML forbids; or an invalid date, number or escape.
        position, reason = "the text", str(error)
    else:
        return places
    raise HooksRefused(f"{position}: This is not YAML: {printable(' '.join(reason.split()))}.")


def _hooks(loader: Any, root: Any, faults: list[str]) -> Iterator[tuple[str, Nodes]]:
    """Yield the places of hooks in a document, with their fields; note faults."""
    fields = _fields(loader, root, "", faults, HOOKS, SAVE, INJECT)
    spec = _fields(loader, fields.get("spec"), "spec", faults, HOOKS)
    faults += [f"spec.{it}: It belongs below spec.{HOOKS}." for it in (SAVE, INJECT) if it in spec]
    places = [it for it in (("spec.", spec), ("", fields)) if HOOKS in it[1]]
    for parent, siblings in places:
        path = f"{parent}{HOOKS}"
        yield f"{path}.", _fields(loader, siblings[HOOKS], path, faults, SAVE, INJECT)
    is_bare = "kind" in fields and fields["kind"].value == "Agent" and not places
    if is_bare or not {SAVE, INJECT}.isdisjoint(fields):
        yield "", fields


def _fields(loader: Any, node: Any, path: str, faults: list[str], *known: str) -> Nodes:
    """Return the fields of a mapping that are not null, as null is the same as absent.

    Their values are nodes: those of the platform's fields may be nothing that YAML can read. Other
    nodes, and names that misspell a known one, are noted as faults.
    """
    fields: Nodes = {}
    if node is not None and node.tag == MAPPING:
        loader.flatten_mapping(node)
        fields = {key.value: it for key, it in node.value if key.tag == TEXT and it.tag != NULL}
    elif node is not None and node.tag != NULL:
        loader.construct_document(node)  # says so if it is not YAML
        faults.append(f"{path or 'the document'}: It must be a mapping of fields.")
    for name in fields:
        if name not in known and (meant := close_to(name, known)):
            place = f"{path}.{printable(name)}".removeprefix(".")
            faults.append(f"{place}: There is no such field. Did you mean {meant}?")
    return fields


def _name(key: Any) -> object:
    return (key.tag, key.value) if isinstance(key.value, str) else id(key)


def _fault(fault: Any) -> str:
    loc, kind, sentence = fault["loc"], fault["type"], f"{fault['msg']}."
    if loc[-1] == "[key]" or kind == "invalid_key":  # pydantic shows True as 1, so it is not named
        loc, kind, sentence = loc[: -2 if loc[-1] == "[key]" else -1], "", NAME_IS_TEXT
    elif kind == "value_error":
        sentence = str(fault["ctx"]["error"])
    elif kind == "unexpected_keyword_argument":
        rule = SaveRule if loc[0] == SAVE else InjectRule
        known = tuple(to_camel(it.name) for it in fields(rule))
        meant = close_to(loc[-1], known)
        hint = f"Did you mean {meant}?" if meant else f"The fields are {', '.join(known)}."
        sentence = f"There is no such field. {hint}"
    steps = (f"[{it}]" if isinstance(it, int) else f".{quoted(it)[1:-1]}" for it in loc)
    return f"{''.join(steps)[1:]}: {MESSAGES.get(kind, sentence)}"
