"""The working memory of an agent: its conversation and state, and their checkpoint files.

A checkpoint file is replaced atomically, so that the state survives a crash.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, PlainValidator, ValidationError
from pydantic.dataclasses import dataclass as checked

from .. import Message
from ..client import replace, temporary
from ..contract.models import adapter_of
from ..contract.service import StrPath, regular

TOKENS_PER_MESSAGE = 4  # in addition to those of its texts
MAX_LINE = 5_000  # bytes of UTF-8 of one message in a transcript

if TYPE_CHECKING:
    Json = Any  # can be indexed without a cast
else:
    Json = JsonValue

# Errors do not quote messages.
OF_NOUNS = ConfigDict(hide_input_in_errors=True, validate_by_name=True, defer_build=True)
Text = Annotated[str, Field(strict=True)]


@checked(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class ToolCall:
    """A tool call of a model; `arguments` are JSON values.

    ValueError if `arguments` is a string of JSON, not yet parsed.
    """

    id: Text
    name: Text
    arguments: Mapping[str, Json] = field(default_factory=dict)


@checked(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class ChatMessage:
    """One message of a conversation.

    Only the role assistant has `tool_calls`, and exactly the role tool has a `tool_call_id`,
    the id of the call whose result it is; otherwise ValueError.
    """

    role: Literal["system", "user", "assistant", "tool"]
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
        """Return the message with the result of a tool call."""
        return cls(role="tool", content=content, tool_call_id=tool_call_id)


def tokens(messages: Iterable[ChatMessage]) -> int:
    """Estimate the tokens of messages: (bytes + 3) // 4 for each text, and 4 for each message.

    A tool call counts as two texts, its name and its arguments.
    """
    total = 0
    for message in messages:
        texts = [message.content]
        for call in message.tool_calls:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False, separators=(",", ":"))
            texts += [call.name, arguments]
        total += TOKENS_PER_MESSAGE + sum((len(utf8(text)) + 3) // 4 for text in texts)
    return total


def line(message: ChatMessage) -> Message | None:
    """Return the message for a session's transcript, or None if it is system or empty there.

    Of a tool call it shows the name of the tool only.
    """
    called = (f"[tool_call: {call.name}]" for call in message.tool_calls)
    text = "\n".join(filter(None, (message.content, *called)))
    cut = utf8(text)[:MAX_LINE].decode(errors="ignore")
    if message.role == "system" or not cut.strip():
        return None
    return Message(role=message.role, content=cut)


def utf8(text: str) -> bytes:
    """Encode text as UTF-8, with U+FFFD for each lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def trimmed(
    messages: Sequence[ChatMessage], budget: int
) -> tuple[tuple[ChatMessage, ...], tuple[ChatMessage, ...]]:
    """Split messages into those kept within the token budget, and those dropped, both in order."""
    sizes = [tokens((message,)) for message in messages]
    excess, gone, cut = sum(sizes) - budget, 0, 0
    covered, is_enough = -1, False  # the end of the latest block; whether enough precedes it
    blocks = zip(messages, sizes, _ends(messages), strict=True)
    for index, (message, size, end) in enumerate(blocks) if excess > 0 else ():
        if message.role == "system":  # belongs to no block, and is kept
            continue
        if index > covered and not is_enough:
            cut, is_enough = index, gone >= excess
        if index > covered and is_enough and message.role == "user":
            cut = index
            break
        covered, gone = max(covered, end), gone + size
    kept, dropped = list[ChatMessage](), list[ChatMessage]()
    for index, message in enumerate(messages):
        (kept if index >= cut or message.role == "system" else dropped).append(message)
    return tuple(kept), tuple(dropped)


def _ends(messages: Sequence[ChatMessage]) -> list[int]:
    """Return, for each message, the index of the last result of its calls, or its own."""
    ends = list(range(len(messages)))
    called: dict[str | None, int] = {}
    for index, message in enumerate(messages):
        called.update((call.id, index) for call in message.tool_calls)
        if message.tool_call_id in called:
            ends[called[message.tool_call_id]] = index
    return ends


class CheckpointError(ValueError):
    """The state cannot be stored, or the file is not a valid checkpoint."""


def write(path: StrPath, document: bytes) -> None:
    """Replace the file at the path atomically; the bytes are on disk when this returns.

    Until then the old file stays whole, even after a kill or on a full disk. The folder must
    exist. If the path is a symbolic link, its target is replaced. Only the owner may read the
    file. Concurrent writers of one path may finish in any order, so call this again only after
    the previous call has returned.

    OSError if the file cannot be written, or is a folder, a device or a pipe; then no
    temporary file remains.
    """
    real = regular(path)
    with temporary(real) as file:
        file.write(document)
        replace(real, file)
    folder = os.open(real.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: StrPath) -> bytes:
    """Return the bytes written last. FileNotFoundError or another OSError if that fails."""
    return regular(path).read_bytes()


FORMAT = {"format": "agentops-memory working memory", "version": 1}
MAX_SESSION_ID = 500  # code points, as in the service
MAX_PATH = 120  # characters of the path of a value in a message

Operation = Literal["start_session", "append_messages", "save", "end_session"]
"""The name of the client method that sends the write."""


@checked(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class Unsent:
    """A write that the service has not accepted yet, with its idempotency key.

    ValueError for an unknown operation, or fields of the wrong type.
    """

    operation: Operation
    fields: Mapping[str, Json]  # arguments of the client method
    key: Text
    trace: Mapping[str, Text] = field(default_factory=dict)  # W3C trace context headers of its turn


def _session_id(id_: object) -> str:
    if not isinstance(id_, str) or not id_.strip() or len(id_) > MAX_SESSION_ID:
        raise ValueError(
            f"A session_id must be text of 1 to {MAX_SESSION_ID} characters, and not blank."
        )
    return id_


Count = Annotated[int, Field(strict=True, ge=0)]
if TYPE_CHECKING:
    Messages = Sequence[ChatMessage]  # any sequence becomes a tuple
else:
    Messages = tuple[ChatMessage, ...]


@checked(slots=True, repr=False, config=OF_NOUNS)
class WorkingMemory:
    """The messages of an agent's conversation, and the state of its loop.

    It belongs to one agent, and is not thread-safe. `turn`, `extra` and `tool_metadata` (keyed by
    call ids) are for the caller; both mappings hold JSON values. `unsent`, `pending`, `sequence`
    and `is_recorded` are for a MemorySession: nothing is added to them before `is_recorded` is set.
    ValueError for an id that the service would refuse. In a checkpoint, fields that have their
    default are absent.
    """

    messages: Messages = ()  # `add` appends
    _: KW_ONLY
    session_id: Annotated[str, PlainValidator(_session_id)] = field(
        default_factory=lambda: str(uuid.uuid4())
    )
    turn: Count = 0
    tool_metadata: dict[str, Json] = field(default_factory=dict)
    extra: dict[str, Json] = field(default_factory=dict)
    unsent: list[Unsent] = field(default_factory=list)  # writes that the service has not accepted
    pending: list[Message] = field(default_factory=list)  # recorded, but in no write yet
    sequence: Count = 0  # number of the last write of messages; starts at random
    is_recorded: Annotated[bool, Field(exclude=True)] = field(default=False, init=False)

    def add(self, *messages: ChatMessage) -> None:
        """Append the messages; none is appended if one is not a ChatMessage (TypeError)."""
        for message in messages:
            if not isinstance(message, ChatMessage):
                raise TypeError(f"A message must be a ChatMessage, not {type(message).__name__}.")
        self.messages = (*self.messages, *messages)
        if self.is_recorded:
            self.pending.extend(filter(None, map(line, messages)))

    def tokens(self) -> int:
        """Estimate the tokens of all messages, as the module's `tokens` does."""
        return tokens(self.messages)

    def unanswered(self) -> tuple[ToolCall, ...]:
        """Return the calls without a result: after a crash, run them again or add a result.

        A result belongs to the latest earlier call with its id. So a call whose id was reused
        is not returned: no result could belong to it any more.
        """
        open_calls: dict[str | None, ToolCall] = {}
        for message in self.messages:
            for call in message.tool_calls:
                open_calls.pop(call.id, None)
                open_calls[call.id] = call
            open_calls.pop(message.tool_call_id, None)
        return tuple(open_calls.values())

    def trim_to_token_budget(self, budget: int) -> tuple[ChatMessage, ...]:
        """Drop the oldest messages until the others fit; return the dropped ones, oldest first.

        If all messages fit, none is dropped. Else all system messages are kept, and the end of the
        conversation, which is cut between two blocks:

        - A block is one message, or an assistant's message with calls and everything up to the
          last of their results. Overlapping blocks count as one.
        - The newest block is kept, even if it alone exceeds the budget.
        - As few blocks as possible are dropped. But if the kept ones do not begin with a user's
          message, and a later block does, all blocks before that one are dropped, too.

        So the kept messages fit, or are the newest block and the system messages. A larger
        budget never keeps fewer. The `tool_metadata` of dropped calls is removed.
        """
        self.messages, dropped = trimmed(self.messages, budget)
        for call in _calls(dropped) - _calls(self.messages):
            self.tool_metadata.pop(call, None)
        return dropped

    def snapshot(self) -> bytes:
        """Return the state as bytes for `write`, which may run in a thread.

        CheckpointError names the path of a value that could not be restored.
        """
        try:
            adapter = adapter_of(WorkingMemory)
            document = FORMAT | adapter.dump_python(self, exclude_defaults=True, warnings=False)
            self._read(document)
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except (ValueError, RecursionError) as fault:
            raise CheckpointError(f"The working memory cannot be stored: {fault}") from fault
        return text.encode(errors="surrogatepass")  # keeps lone surrogates

    def checkpoint(self, path: StrPath) -> None:
        """Store the state in a file, which has the old or the new state after any crash.

        `write` has the details. CheckpointError as for `snapshot`, OSError
        if the file cannot be written; it is unchanged then.
        """
        write(path, self.snapshot())

    @classmethod
    def restore(cls, path: StrPath) -> Self:
        """Return the working memory stored in the file.

        FileNotFoundError if the file does not exist; CheckpointError if it
        is not a checkpoint, or one of a newer version.
        """
        try:
            return cls._read(json.loads(read(path).decode(errors="surrogatepass")))
        except (ValueError, RecursionError) as fault:
            raise CheckpointError(f"The checkpoint {path} cannot be read: {fault}") from fault

    @classmethod
    def resume(cls, path: StrPath) -> Self:
        """Return the working memory stored in the file, or a new one if there is no file."""
        try:
            return cls.restore(path)
        except FileNotFoundError:
            return cls()

    @classmethod
    def _read(cls, document: object) -> Self:
        """Validate a checkpoint; ValueError names the path of the first invalid value."""
        if not isinstance(document, dict) or document | FORMAT != document:
            raise ValueError(f"It is not an {FORMAT['format']} of version {FORMAT['version']}.")
        if "session_id" not in document:  # a new one would begin another session
            raise ValueError("session_id: Field required.")
        try:
            memory: Self = adapter_of(cls).validate_python(document)  # type: ignore[arg-type]
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(map(str, fault["loc"]))[:MAX_PATH]
            reason = fault["msg"].removeprefix("Value error, ").rstrip(".")
            raise ValueError(f"{path}: {reason}.") from None
        return memory


def _calls(messages: Iterable[ChatMessage]) -> set[str]:
    return {call.id for message in messages for call in message.tool_calls}
