"""Tool hooks: memories saved after tool calls, and memories searched for before them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as checked
from pydantic_core import PydanticCustomError

from ..contract.models import CLIENT, install_command
from .conversation import ToolCall, require

LONGEST_PATTERN = 10_000  # code points
LONGEST_QUOTED = 80  # of a text in a message
MOST_RESULTS = 1_000  # memories that one search returns
FROM_ARGUMENTS = "from_tool_args"
SAVE, INJECT = "memorySaveRules", "contextInjectTools"  # as manifests have them

_CLOSE = 0.8  # of difflib's ratio: two names that are meant to be one
_TITLE_SUBJECT = 80  # code points of a command or path in a title
_CONTENT = 1_000  # code points of an output
_SUBJECTS = ("command", "path")
_QUESTIONS = ("command", "query", "path")
_LONE = re.compile("[\ud800-\udfff]")
_LACKING = re.compile(r"invalid perl operator: \(\?<?[=!]|invalid escape sequence: \\[1-9]")


class HooksRefused(ValueError):
    """The hooks cannot be read. `faults` names all that is wrong, each with its place."""

    @property
    def faults(self) -> tuple[str, ...]:
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.faults)


class WrongPattern(ValueError):
    """RE2 does not take the pattern; the message says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression in the syntax of RE2; WrongPattern for what is none.

    ImportError, with what to install, where google-re2 is not.
    """

    text: str
    _searched: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise WrongPattern(f"A pattern must be text, not {type(self.text).__name__}.")
        if len(self.text) > LONGEST_PATTERN:
            raise WrongPattern(f"A pattern has at most {LONGEST_PATTERN:,} characters.")
        object.__setattr__(self, "_searched", _compiled(self.text))

    def is_in(self, text: str) -> bool:
        """Whether it matches anywhere in the text; half of a character counts as U+FFFD."""
        return self._searched.search(_utf8(text)) is not None


@lru_cache
def _compiled(text: str) -> Any:
    try:
        import re2  # noqa: PLC0415 - a user without rules needs no RE2
    except ModuleNotFoundError as error:
        raise ImportError(
            f"The patterns of tool hooks need google-re2: {install_command(CLIENT, 'runtime')}"
        ) from error
    options = re2.Options()
    options.log_errors = False  # what it would print is in the exception
    options.never_capture = True
    try:
        return re2.compile(_utf8(text), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        message = f"RE2 does not take the pattern {quoted(text)} and says {quoted(reason)}."
        lacks = " It has no lookahead, lookbehind or backreference."
        raise WrongPattern(message + lacks * bool(_LACKING.match(reason))) from error


def _utf8(text: str) -> bytes:
    return _LONE.sub("\ufffd", text).encode()


def quoted(text: str) -> str:
    """The text as a message quotes it: on one line that is not too long."""
    cut = text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}..."
    return f'"{printable(cut)}"'


def printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def close_to(name: str, known: tuple[str, ...]) -> str | None:
    """The name that was meant, if it is written a little differently."""
    plain = {it.replace("_", "").lower(): it for it in known}
    written = name.replace("_", "").replace("-", "").lower()
    return next((plain[it] for it in get_close_matches(written, plain, 1, _CLOSE)), None)


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


# The limits are the service's, in code points.
Tool = Annotated[str, Field(strict=True, max_length=100), AfterValidator(_visible)]  # as a tag
Word = Annotated[str, Field(strict=True, max_length=50), AfterValidator(_visible)]
Searched = Annotated[Pattern, PlainValidator(_pattern)]
OF_RULES = ConfigDict(
    alias_generator=to_camel, validate_by_name=True, extra="forbid", hide_input_in_errors=True,
    defer_build=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a call leaves behind: the memory to save."""

    type: str
    scope: str
    title: str
    content: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched for before a call."""

    query: str
    limit: int


@checked(frozen=True, slots=True, kw_only=True, config=OF_RULES)
class SaveRule:
    """What a tool says is saved if it matches, and if each argument that is named does.

    ValueError for a field that the service would not take.
    """

    tool: Tool
    match_output: Searched | None = None
    match_args: Mapping[str, Searched] = field(default_factory=dict)
    type: Word = "discovery"
    scope: Word = "project"

    def capture(self, call: ToolCall, output: str) -> Capture | None:
        """The memory of a call that matches and has said something; None for any other."""
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
            # Never blank: the service would not take it.
            content=start if start.strip() else output.lstrip()[:_CONTENT],
            tags=("auto-capture", "hook", self.tool),
        )


@checked(frozen=True, slots=True, kw_only=True, config=OF_RULES)
class InjectRule:
    """Before a tool runs memories are searched for: with its arguments, or with words of one's own.

    ValueError for a field that the service would not take.
    """

    tool: Tool
    query: Annotated[str, Field(strict=True), AfterValidator(_query)]
    limit: Annotated[int, Field(strict=True, ge=1, le=MOST_RESULTS)] = 3

    def question(self, call: ToolCall) -> Question | None:
        """What to search for; None for a call without an argument to search with."""
        query = _argument(call, _QUESTIONS) if self.query == FROM_ARGUMENTS else self.query
        return Question(query=query, limit=self.limit) if query else None


def _argument(call: ToolCall, names: tuple[str, ...]) -> str | None:
    values = (call.arguments.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


@checked(frozen=True, slots=True, kw_only=True, config=OF_RULES)
class ToolHooks:
    """Rules for tools. Of each list the first rule with the tool's name decides, and no other."""

    save_rules: Annotated[tuple[SaveRule, ...], Field(validation_alias=SAVE)] = ()
    inject_rules: Annotated[tuple[InjectRule, ...], Field(validation_alias=INJECT)] = ()

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """The hooks of an agent's manifest, or of its `toolHooks` alone; none if it has none.

        HooksRefused names every fault. ImportError, with what to install, where
        PyYAML or google-re2 is not.
        """
        require("The text of hooks", text, str)
        try:
            from .manifest import hooks_in  # noqa: PLC0415 - nobody else needs PyYAML
        except ModuleNotFoundError as error:
            raise ImportError(
                f"Tool hooks in YAML need PyYAML: {install_command(CLIENT, 'runtime')}"
            ) from error
        return hooks_in(cls, text)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The hooks in a file of YAML in UTF-8. HooksRefused names the file, too."""
        try:
            return cls.from_yaml(Path(path).read_bytes().decode())
        except UnicodeDecodeError as error:
            raise HooksRefused(f"{path}: Byte {error.start + 1} is not UTF-8.") from error
        except HooksRefused as refused:
            raise HooksRefused(*(f"{path}: {fault}" for fault in refused.faults)) from None

    def capture(self, call: ToolCall, output: str) -> Capture | None:
        """The memory to save of a call that has said this, if its rule has it saved.

        TypeError for an output that is no text, with a rule or without.
        """
        require("The output of a tool", output, str)
        rule = next((it for it in self.save_rules if it.tool == call.name), None)
        return rule.capture(call, output) if rule else None

    def question(self, call: ToolCall) -> Question | None:
        """What to search for before the call, if its rule asks for something."""
        rule = next((it for it in self.inject_rules if it.tool == call.name), None)
        return rule.question(call) if rule else None
