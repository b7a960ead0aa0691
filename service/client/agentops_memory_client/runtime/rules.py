"""The rules of tool hooks: which calls leave a memory behind, and which ask for memories first."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..contract.errors import CLIENT, install_command
from .conversation import ToolCall

LONGEST = 10_000  # code points
LONGEST_QUOTED = 80  # of a text in a message

_LONE = re.compile("[\ud800-\udfff]")
_LACKING = re.compile(r"invalid perl operator: \(\?<?[=!]|invalid escape sequence: \\[1-9]")


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
        if len(self.text) > LONGEST:
            raise WrongPattern(f"A pattern has at most {LONGEST:,} characters.")
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
        raise WrongPattern(_refusal(text, error.args[0].decode(errors="replace"))) from error


def _refusal(text: str, reason: str) -> str:
    message = f"RE2 does not take the pattern {quoted(text)} and says {quoted(reason)}."
    lacks = " It has no lookahead, lookbehind or backreference."
    return message + lacks if _LACKING.match(reason) else message


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", text).encode()


def line(text: str) -> str:
    """The text on one line that is not too long."""
    cut = text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}..."
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in cut)


def quoted(text: str) -> str:
    """The text as a message quotes it."""
    return f'"{line(text)}"'


# Code points, as the service takes them.
LONGEST_TOOL = 100  # it becomes a tag
LONGEST_TYPE = 50
LONGEST_SCOPE = 50
MOST_RESULTS = 1_000  # memories that one search returns

TYPE, SCOPE, LIMIT = "discovery", "project", 3
FROM_ARGUMENTS = "from_tool_args"

_TITLE_SUBJECT = 80  # code points of a command or path in a title
_CONTENT = 1_000  # code points of an output
_SUBJECTS = ("command", "path")
_QUESTIONS = ("command", "query", "path")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRule:
    """What a tool says is saved if it matches, and if each argument that is named does.

    ValueError for a field that the service would not take.
    """

    tool: str
    match_output: Pattern | None = None
    match_args: Mapping[str, Pattern] = field(default_factory=dict)
    type: str = TYPE
    scope: str = SCOPE

    def __post_init__(self) -> None:
        _refuse("tool", self.tool, LONGEST_TOOL)
        _refuse("type", self.type, LONGEST_TYPE)
        _refuse("scope", self.scope, LONGEST_SCOPE)
        if not isinstance(self.match_output, Pattern | None):
            raise ValueError("match_output: It must be a Pattern.")
        if not isinstance(self.match_args, Mapping) or not all(
            isinstance(pattern, Pattern) for pattern in self.match_args.values()
        ):
            raise ValueError("match_args: It must have a Pattern for each name.")

    def capture(self, call: ToolCall, output: str) -> Capture | None:
        """The memory of a call that matches and has said something; None for any other."""
        if not output.strip() or not self._matches(call, output):
            return None
        subject = _argument(call, _SUBJECTS)
        title = f"Auto-captured: {self.tool}"
        return Capture(
            type=self.type,
            scope=self.scope,
            title=f"{title} — {subject[:_TITLE_SUBJECT]}" if subject else title,
            content=_content(output),
            tags=("auto-capture", "hook", self.tool),
        )

    def _matches(self, call: ToolCall, output: str) -> bool:
        if self.match_output is not None and not self.match_output.is_in(output):
            return False
        return all(
            isinstance(value := call.arguments.get(name), str) and pattern.is_in(value)
            for name, pattern in self.match_args.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectRule:
    """Before a tool runs memories are searched for: with its arguments, or with words of one's own.

    ValueError for a field that the service would not take.
    """

    tool: str
    query: str
    limit: int = LIMIT

    def __post_init__(self) -> None:
        _refuse("tool", self.tool, LONGEST_TOOL)
        _refuse("query", self.query)
        if not isinstance(self.limit, int) or not 1 <= self.limit <= MOST_RESULTS:
            raise ValueError(f"limit: It must be a whole number from 1 to {MOST_RESULTS:,}.")

    def question(self, call: ToolCall) -> Question | None:
        """What to search for; None for a call without an argument to search with."""
        query = _argument(call, _QUESTIONS) if self.query == FROM_ARGUMENTS else self.query
        return Question(query=query, limit=self.limit) if query else None


def fault_of(text: object, longest: int | None = None) -> str | None:
    """What is wrong with the text of a field, as a sentence."""
    if not isinstance(text, str):
        return "It must be text."
    if not text.strip():
        return "It is blank."
    if longest is not None and len(text) > longest:
        return f"It has more than {longest} characters."
    return None


def _refuse(name: str, text: object, longest: int | None = None) -> None:
    if fault := fault_of(text, longest):
        raise ValueError(f"{name}: {fault}")


def _argument(call: ToolCall, names: tuple[str, ...]) -> str | None:
    values = (call.arguments.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def _content(output: str) -> str:
    """The beginning of the output, which is never blank: the service would not take it."""
    cut = output[:_CONTENT]
    return cut if cut.strip() else output.lstrip()[:_CONTENT]
