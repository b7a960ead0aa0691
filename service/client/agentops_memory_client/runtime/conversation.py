"""The messages of a conversation with a model, an estimate of their tokens, and what leaves it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from .. import Message

Role = Literal["system", "user", "assistant", "tool"]

TOKENS_OF_MESSAGE = 4  # of what is around the text
LONGEST_LINE = 5_000  # bytes of UTF-8 in a transcript


# What a message says appears in no error.
OF_NOUNS = ConfigDict(hide_input_in_errors=True, validate_by_name=True, defer_build=True)
Text = Annotated[str, Field(strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class ToolCall:
    """A tool call of a model, with its arguments as JSON has them.

    ValueError for arguments that are still text.
    """

    id: Text
    name: Text
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class ChatMessage:
    """One message of a conversation.

    Only an assistant calls tools, and a tool's message names the call that it
    answers; ValueError for any other.
    """

    role: Role
    content: Text = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None

    def __post_init__(self) -> None:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"Only an assistant message has tool calls, not one of {self.role!r}.")
        if (self.tool_call_id is None) is (self.role == "tool"):
            raise ValueError("Exactly the messages with the role tool must have a tool_call_id.")

    @classmethod
    def system(cls, content: str) -> Self:
        return cls(role="system", content=content)

    @classmethod
    def user(cls, content: str) -> Self:
        return cls(role="user", content=content)

    @classmethod
    def assistant(cls, content: str = "", tool_calls: Iterable[ToolCall] = ()) -> Self:
        return cls(role="assistant", content=content, tool_calls=tuple(tool_calls))

    @classmethod
    def tool(cls, tool_call_id: str, content: str) -> Self:
        """The result of a call."""
        return cls(role="tool", content=content, tool_call_id=tool_call_id)


def tokens(messages: Iterable[ChatMessage]) -> int:
    """About how many tokens the messages are: (bytes + 3) // 4 a text, 4 more a message.

    A call counts as two texts, its name and its arguments.
    """
    return sum(
        TOKENS_OF_MESSAGE + sum((len(_bytes(text)) + 3) // 4 for text in _texts(message))
        for message in messages
    )


def line(message: ChatMessage) -> Message | None:
    """The message in a session's transcript; None for one that has no text there.

    A call appears by its tool's name alone; system messages are left out.
    """
    called = (f"[tool_call: {call.name}]" for call in message.tool_calls)
    text = "\n".join(filter(None, (message.content, *called)))
    cut = _bytes(text)[:LONGEST_LINE].decode(errors="ignore")
    if message.role == "system" or not cut.strip():
        return None
    return Message(role=message.role, content=cut)


def require(name: str, value: object, kind: type) -> None:
    """TypeError, with the argument's name, if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of the type {kind.__name__}, not {type(value).__name__}.")


def _texts(message: ChatMessage) -> Iterable[str]:
    yield message.content
    for call in message.tool_calls:
        yield call.name
        yield json.dumps(dict(call.arguments), ensure_ascii=False, separators=(",", ":"))


def _bytes(text: str) -> bytes:
    """UTF-8, with U+FFFD for what is half of a character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


Messages = tuple[ChatMessage, ...]


def trimmed(messages: Sequence[ChatMessage], budget: int) -> tuple[Messages, Messages]:
    """The messages that stay within so many tokens, and those that are dropped; both in order."""
    cut = _cut(messages, budget)
    kept: list[ChatMessage] = []
    dropped: list[ChatMessage] = []
    for index, message in enumerate(messages):
        stays = index >= cut or message.role == "system"
        (kept if stays else dropped).append(message)
    return tuple(kept), tuple(dropped)


def _cut(messages: Sequence[ChatMessage], budget: int) -> int:
    sizes = [tokens((message,)) for message in messages]
    excess = sum(sizes) - budget
    starts = list(_starts(messages))
    if excess <= 0 or not starts:
        return 0
    may_go = (
        0 if message.role == "system" else size
        for message, size in zip(messages, sizes, strict=True)
    )
    gone = list(accumulate(may_go, initial=0))
    enough = next((index for index in starts if gone[index] >= excess), starts[-1])
    users = (index for index in starts if index >= enough and messages[index].role == "user")
    return next(users, enough)


def _starts(messages: Sequence[ChatMessage]) -> Iterator[int]:
    """Where each block begins; system messages are in none."""
    covered = -1
    for index, end in enumerate(_ends(messages)):
        if index > covered and messages[index].role != "system":
            yield index
        covered = max(covered, end)


def _ends(messages: Sequence[ChatMessage]) -> list[int]:
    """For each message where the last result of its calls is, or else itself."""
    ends = list(range(len(messages)))
    called: dict[str | None, int] = {}
    for index, message in enumerate(messages):
        called.update((call.id, index) for call in message.tool_calls)
        if message.tool_call_id in called:
            ends[called[message.tool_call_id]] = index
    return ends
