"""Tool hooks: rules that save memories after tool calls, and search for memories before them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as checked
from pydantic.functional_validators import BeforeValidator, PlainValidator
from pydantic_core import PydanticCustomError

from ..contract.models import CLIENT, Noun, T, install_command
from .working_memory import ToolCall, utf8

LONGEST_QUOTED = 80  # characters of a text quoted in a message
MOST_RESULTS = 1_000  # memories that one search returns
FROM_ARGUMENTS = "from_tool_args"
HOOKS, SAVE, INJECT = "toolHooks", "memorySaveRules", "contextInjectTools"  # in a manifest
NULLS = ("", "~", "null", "Null", "NULL")
# Messages by pydantic's error type; for other types its own message is plain enough.
MESSAGES = {
    "missing": "It is missing.", "unexpected_keyword_argument": "There is no such field.",
    "tuple_type": "It must be a list.", "string_type": "It must be text.",
    "string_pattern_mismatch": "It is blank.",
    **dict.fromkeys(("dict_type", "dataclass_type"), "It must be a mapping of fields."),
}  # fmt: skip

_SIMILAR = 0.8  # difflib ratio from which a name counts as a misspelling of another
_TITLE_SUBJECT = 80  # code points of a command or path in a title
_CONTENT = 1_000  # code points of an output in a content
_SUBJECTS = ("command", "path")  # names of arguments, the preferred one first
_QUERIES = ("command", "query", "path")


class HooksRefused(ValueError):
    """The hooks are invalid. `faults` names every fault with its path."""

    @property
    def faults(self) -> tuple[str, ...]:
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.faults)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression in RE2 syntax; ValueError, which says why, if RE2 refuses it.

    ImportError, with an install command, if google-re2 is not installed.
    """

    text: str

    def __post_init__(self) -> None:
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
        raise ValueError(message) from error


def quoted(text: str) -> str:
    """Quote a text for a message: shortened, and on one line."""
    cut = text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}..."
    return f'"{printable(cut)}"'


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _pattern(value: object) -> Pattern:
    if not isinstance(value, str | Pattern):
        raise PydanticCustomError("string_type", "It must be a Pattern.")
    return Pattern(value) if isinstance(value, str) else value


def _without_empty(rule: object) -> object:
    """Drop the fields of a rule in YAML that are null or, as on the platform, empty."""
    if not isinstance(rule, dict):
        return rule
    return {name: it for name, it in rule.items() if it not in (None, "")}


# Limits in code points, as in the service.
NOT_BLANK = r"\S"
Tool = Annotated[str, Field(strict=True, max_length=100, pattern=NOT_BLANK)]  # also a tag
Word = Annotated[str, Field(strict=True, max_length=50, pattern=NOT_BLANK)]
Searched = Annotated[Pattern, PlainValidator(_pattern)]
Written = Annotated[T, BeforeValidator(_without_empty)]
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
    query: Annotated[str, Field(strict=True, pattern=NOT_BLANK)]
    limit: Annotated[int, Field(ge=1, le=MOST_RESULTS)] = 3

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
        faults = list[str]()
        places = _places(text, faults)
        if len(places) > 1:
            faults.append(f"{HOOKS}: Hooks are of one agent; these stand in {len(places)} places.")
        path, rules = places[0] if places else ("", {})
        try:
            hooks = TypeAdapter(cls).validate_python(rules, by_alias=True, by_name=False)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            faults += [f"{path}{_fault(it)}" for it in errors]
        if faults:
            raise HooksRefused(*faults)
        return hooks

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read the hooks in a YAML file in UTF-8. HooksRefused names the file, too."""
        try:
            return cls.from_yaml(Path(path).read_text("utf-8"))
        except UnicodeDecodeError as error:
            raise HooksRefused(f"{path}: Byte {error.start + 1} is not UTF-8.") from error
        except HooksRefused as refused:
            raise HooksRefused(*(f"{path}: {fault}" for fault in refused.faults)) from None

    def capture(self, call: ToolCall, output: str) -> Capture | None:
        """Return the memory to save after a call, or None if no rule saves it."""
        rule = next((it for it in self.save_rules if it.tool == call.name), None)
        return rule.capture(call, output) if rule else None

    def question(self, call: ToolCall) -> Question | None:
        """Return the search to run before the call, or None if no rule has one."""
        rule = next((it for it in self.inject_rules if it.tool == call.name), None)
        return rule.question(call) if rule else None


def _places(text: str, faults: list[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the path and the lists of rules of each place with hooks in a text; note faults."""
    places = []
    for document in _documents(text):
        fields = _mapping(document, "", faults)
        spec = _mapping(fields.get("spec"), "spec", faults)
        faults += [
            f"spec.{it}: It belongs below spec.{HOOKS}." for it in (SAVE, INJECT) if it in spec
        ]
        for path, hooks in ((f"spec.{HOOKS}", spec.get(HOOKS)), (HOOKS, fields.get(HOOKS))):
            if hooks is not None:
                places.append((f"{path}.", _mapping(hooks, path, faults)))
        if SAVE in fields or INJECT in fields:
            places.append(("", fields))
    return [(path, {it: at[it] for it in (SAVE, INJECT) if it in at}) for path, at in places]


def _documents(text: str) -> list[Any]:
    """Parse YAML in which all scalars are text but null: so `no` and `1` can be names."""
    yaml: Any = _imported("yaml", "Tool hooks in YAML need PyYAML")

    class Loader(yaml.BaseLoader):  # type: ignore[misc]
        def construct_scalar(self, node: Any) -> str | None:
            return None if node.style is None and node.value in NULLS else node.value

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[object, object]:
            names = [key.value if isinstance(key.value, str) else id(key) for key, _ in node.value]
            if len({*names}) < len(names):
                problem = "a field stands twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
            values = (self.construct_object(value, deep) for _, value in node.value)
            return dict(zip(names, values, strict=True))

    try:
        return [*yaml.load_all(text, Loader)]
    except (yaml.YAMLError, OverflowError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        reason = printable(str(getattr(error, "problem", None) or error))
        raise HooksRefused(f"{place}: This is not YAML: {reason}.") from error


def _mapping(value: Any, path: str, faults: list[str]) -> dict[str, Any]:
    """Return the fields that are not null; note another value, and misspelled names."""
    if not isinstance(value, dict):
        if value is not None:
            faults.append(f"{path or 'the document'}: It must be a mapping of fields.")
        return {}
    fields = {str(name): it for name, it in value.items() if it is not None}
    names = (HOOKS, SAVE, INJECT)
    for name in fields:
        if name not in names and (meant := get_close_matches(name, names, 1, _SIMILAR)):
            place = printable(f"{path}.{name}".removeprefix("."))
            faults.append(f"{place}: There is no such field. Did you mean {meant[0]}?")
    return fields


def _fault(fault: Any) -> str:
    """Return the path and the sentence of an error of pydantic."""
    path = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in fault["loc"])
    reason = fault["msg"].removeprefix("Value error, ").rstrip(".")
    return printable(f"{path[1:]}: {MESSAGES.get(fault['type'], f'{reason}.')}")
