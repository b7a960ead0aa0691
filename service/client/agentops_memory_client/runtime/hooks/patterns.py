"""Patterns that are searched for in what tools say, in time linear in its length: those of RE2."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...contract.extras import CLIENT, install_command

LONGEST = 10_000  # code points
LONGEST_SHOWN = 80  # of a text in a message

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
    cut = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in cut)


def quoted(text: str) -> str:
    """The text as a message quotes it."""
    return f'"{line(text)}"'
