"""The working memory of an agent: its conversation and state, which survive a crash.

Checkpoint files are replaced atomically.
"""

import errno
import json
import math
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, PlainValidator, ValidationError
from pydantic.dataclasses import dataclass as checked

from .. import Message
from ..client import LONGEST, replace, temporary, temporary_name
from ..contract.models import adapter_of

TOKENS_OF_MESSAGE = 4  # of what is around the text
LONGEST_LINE = 5_000  # bytes of UTF-8 in a transcript

# What a message says appears in no error.
OF_NOUNS = ConfigDict(hide_input_in_errors=True, validate_by_name=True, defer_build=True)
Text = Annotated[str, Field(strict=True)]


@checked(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class ToolCall:
    """A tool call of a model, with its arguments as JSON has them.

    ValueError for arguments that are still text.
    """

    id: Text
    name: Text
    arguments: Mapping[str, Any] = field(default_factory=dict)


@checked(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class ChatMessage:
    """One message of a conversation.

    Only an assistant calls tools, and a tool's message names the call that it
    answers; ValueError for any other.
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
        """The result of a call."""
        return cls(role="tool", content=content, tool_call_id=tool_call_id)


def tokens(messages: Iterable[ChatMessage]) -> int:
    """About how many tokens the messages are: (bytes + 3) // 4 a text, 4 more a message.

    A call counts as two texts, its name and its arguments.
    """
    total = 0
    for message in messages:
        texts = [message.content]
        for call in message.tool_calls:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False, separators=(",", ":"))
            texts += [call.name, arguments]
        total += TOKENS_OF_MESSAGE + sum((len(utf8(text)) + 3) // 4 for text in texts)
    return total


def line(message: ChatMessage) -> Message | None:
    """The message in a session's transcript; None for one that has no text there.

    A call appears by its tool's name alone; system messages are left out.
    """
    called = (f"[tool_call: {call.name}]" for call in message.tool_calls)
    text = "\n".join(filter(None, (message.content, *called)))
    cut = utf8(text)[:LONGEST_LINE].decode(errors="ignore")
    if message.role == "system" or not cut.strip():
        return None
    return Message(role=message.role, content=cut)


def require(name: str, value: object, kind: type) -> None:
    """TypeError, with the argument's name, if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of the type {kind.__name__}, not {type(value).__name__}.")


def utf8(text: str) -> bytes:
    """UTF-8, with U+FFFD for what is half of a character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def trimmed(
    messages: Sequence[ChatMessage], budget: int
) -> tuple[tuple[ChatMessage, ...], tuple[ChatMessage, ...]]:
    """The messages that stay within so many tokens, and those that are dropped; both in order."""
    sizes = [tokens((message,)) for message in messages]
    excess, gone, cut = sum(sizes) - budget, 0, 0
    covered, is_enough = -1, False  # the end of the latest block; whether what is before it was
    blocks = zip(messages, sizes, _ends(messages), strict=True)
    for index, (message, size, end) in enumerate(blocks) if excess > 0 else ():
        if message.role == "system":  # in no block, and stays
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
    """For each message where the last result of its calls is, or else itself."""
    ends = list(range(len(messages)))
    called: dict[str | None, int] = {}
    for index, message in enumerate(messages):
        called.update((call.id, index) for call in message.tool_calls)
        if message.tool_call_id in called:
            ends[called[message.tool_call_id]] = index
    return ends


class CheckpointError(ValueError):
    """A state that cannot be stored, or a file that holds none; its text is a sentence."""


def write(path: str | os.PathLike[str], document: bytes) -> None:
    """Put these bytes at the path; they are on disk when this returns.

    Whatever happens until then, even a kill or a full disk, what was there
    stays whole. The folder must exist. Where the path is a link, the file that
    it leads to is replaced. The owner alone may read the file. The last writer of
    a path to begin may not be the last to write, so begin when the one before is done.

    OSError if it cannot be written, or is a folder, a device or a pipe; then
    nothing is left behind.
    """
    real = Path(os.path.realpath(path))
    _refuse_other_than_file(real)
    while True:
        with temporary(real) as file:
            file.write(document)
            try:
                replace(real, file)
            except FileNotFoundError:
                continue  # another writer took it for one that a killed process left
        break
    left = re.compile(temporary_name(re.escape(real.name[:LONGEST]), r"\w{8}"))
    for name in filter(left.fullmatch, os.listdir(real.parent)):  # noqa: PTH208 - a fifth of the time
        real.with_name(name).unlink(missing_ok=True)
    folder = os.open(real.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: str | os.PathLike[str]) -> bytes:
    """What was written last. FileNotFoundError if nothing was; OSError if it cannot be read."""
    _refuse_other_than_file(Path(path))
    return Path(path).read_bytes()


def _refuse_other_than_file(path: Path) -> None:
    """A device would be replaced, and a pipe be waited for."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A checkpoint is a file, not a folder", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "A checkpoint is an ordinary file", str(path))


T = TypeVar("T")

FORMAT = "agentops-memory working memory"
VERSION = 1
DEEPEST = 100  # lists and objects in one another, as in what the service takes
MAX_SESSION_ID = 500  # code points, as the service takes them
MAX_PATH = 120  # characters of it in a sentence

NEWER = f"It is of version {{}}, and this program reads none above {VERSION}; a newer one wrote it."

FilePath = str | os.PathLike[str]

Operation = Literal["start_session", "append_messages", "save", "end_session"]
"""The name of the client's method."""


@checked(frozen=True, slots=True, kw_only=True, config=OF_NOUNS)
class Unsent:
    """One write, with its idempotency key.

    ValueError for an unknown operation, or fields of the wrong type.
    """

    # The name is that of checkpoints.
    operation: Annotated[Operation, Field(validation_alias="deed")]
    fields: Mapping[str, Any]  # what the client's method takes, as JSON has it
    key: Text
    trace: Mapping[str, Text] = field(default_factory=dict)  # W3C trace context of its turn

    @classmethod
    def keyed(
        cls, operation: Operation, fields: Mapping[str, Any], trace: Mapping[str, str],
        *parts: object,
    ) -> Self:  # fmt: skip
        """A write whose key is the hash of its operation, its fields and these parts."""
        text = json.dumps([operation, fields, *parts], sort_keys=True)
        return cls(
            operation=operation, fields=fields, key=sha256(text.encode()).hexdigest(), trace=trace
        )


class WorkingMemory:
    """What an agent works with: the messages so far, and state of its loop.

    It belongs to one agent, and is not thread-safe. `turn`, `extra` and
    `tool_metadata` (by the ids of calls) are the caller's; both mappings hold
    JSON values. `unsent`, `pending`, `sequence` and `is_recorded` are reserved
    for a MemorySession: nothing is added to them before `is_recorded` is set.
    """

    __slots__ = (
        "_messages", "extra", "is_recorded", "pending", "sequence", "session_id", "tool_metadata",
        "turn", "unsent",
    )  # fmt: skip

    def __init__(
        self, messages: Iterable[ChatMessage] = (), *, session_id: str | None = None,
        turn: int = 0, tool_metadata: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Begin with these messages; a session without an id gets a new one.

        ValueError for an id that the service would not take.
        """
        self.session_id = str(uuid.uuid4()) if session_id is None else session_id
        _session_id(self.session_id)
        self.turn = turn
        self.tool_metadata: dict[str, Any] = dict(tool_metadata or {})
        self.extra: dict[str, Any] = dict(extra or {})
        self.unsent: list[Unsent] = []  # writes that the service has not accepted
        self.pending: list[Message] = []  # messages not yet in a write
        self.sequence = 0  # of the writes of messages; a session starts it at random
        self.is_recorded = False
        self._messages: list[ChatMessage] = []
        self.add(*messages)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(session_id={self.session_id!r}, turn={self.turn!r}, "
            f"messages={len(self._messages)})"
        )

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The conversation, for the next question to the model."""
        return tuple(self._messages)

    def add(self, *messages: ChatMessage) -> None:
        """Go on with these messages, all of them or none. TypeError for what is no ChatMessage."""
        for message in messages:
            if not isinstance(message, ChatMessage):
                raise TypeError(f"A message must be a ChatMessage, not {type(message).__name__}.")
        self._messages.extend(messages)
        if self.is_recorded:
            self.pending.extend(filter(None, map(line, messages)))

    def tokens(self) -> int:
        """About how many tokens the messages are, as `tokens` of the module has it."""
        return tokens(self._messages)

    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls without a result by now: after a crash, what to run again or to answer.

        A result is of the latest call before it with its id. So a call whose id was used again
        is not among them: nothing could answer it any more.
        """
        open_calls: dict[str | None, ToolCall] = {}
        for message in self._messages:
            for call in message.tool_calls:
                open_calls.pop(call.id, None)
                open_calls[call.id] = call
            open_calls.pop(message.tool_call_id, None)
        return tuple(open_calls.values())

    def trim_to_token_budget(self, budget: int) -> tuple[ChatMessage, ...]:
        """Drop the oldest messages until the others fit; those dropped, oldest first.

        Nothing is dropped if all fits. Else system messages stay, wherever they are, and of the
        others an end of the conversation, cut between two blocks:

        - A block is a message, or an assistant's message with calls and everything up to the
          last of their results; blocks that overlap are one.
        - The newest block stays, even if it alone is too large.
        - As few blocks as possible are dropped; but if what then stays does not begin with a
          user's message, and a later block does, all before that one.

        So what stays fits, or is the newest block with the system messages alone; and a larger
        budget never keeps less. What is known of the calls that go, goes with them.
        """
        require("budget", budget, int)
        kept, dropped = trimmed(self._messages, budget)
        self._messages[:] = kept
        for call in _calls(dropped) - _calls(kept):
            self.tool_metadata.pop(call, None)
        return dropped

    def snapshot(self) -> bytes:
        """The state as a document, for `checkpoint.write`, which may run in a thread.

        CheckpointError names the place of what could not be restored.
        """
        state = {it.name: getattr(self, it.name) for it in fields_of(_State)}
        listed: list[tuple[str, Iterable[object]]] = [
            ("messages", self._messages), ("unsent", self.unsent), ("said", self.pending)
        ]  # fmt: skip
        nouns = {name: list(map(_members, it)) for name, it in listed}
        try:
            _checked(_State, state)
            document = _plain({"format": FORMAT, "version": VERSION, **state, **nouns}, "")
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError) as fault:
            deep = isinstance(fault, RecursionError)
            reason = "It is nested too deeply." if deep else fault
            raise CheckpointError(f"The working memory cannot be stored: {reason}") from fault
        return text.encode(errors="surrogatepass")  # half a character comes back as it was

    def checkpoint(self, path: FilePath) -> None:
        """Store the state: whatever happens, the file has this state or the one before.

        `checkpoint.write` has the whole promise. CheckpointError as for
        `snapshot`, OSError if it cannot be written; the file is then as it was.
        """
        write(path, self.snapshot())

    @classmethod
    def restore(cls, path: FilePath) -> Self:
        """The working memory that was stored there.

        FileNotFoundError if there is none; CheckpointError for a file that
        holds none, or that of a newer version.
        """
        try:
            state = _read(read(path))
        except ValueError as fault:
            raise CheckpointError(f"The checkpoint {path} cannot be read: {fault}") from fault
        memory = cls(state.messages)
        for it in fields_of(_State):
            setattr(memory, it.name, getattr(state, it.name))
        memory.unsent, memory.pending = state.unsent, state.said
        return memory

    @classmethod
    def resume(cls, path: FilePath) -> Self:
        """The working memory that was stored there, or a new one if there is none."""
        try:
            return cls.restore(path)
        except FileNotFoundError:
            return cls()


def _calls(messages: Iterable[ChatMessage]) -> set[str]:
    return {call.id for message in messages for call in message.tool_calls}


def _session_id(id_: object) -> str:
    if not isinstance(id_, str) or not id_.strip() or len(id_) > MAX_SESSION_ID:
        raise ValueError(
            f"A session_id must be text of 1 to {MAX_SESSION_ID} characters, and not blank."
        )
    return id_


Count = Annotated[int, Field(strict=True, ge=0)]


# A checkpoint: the state as JSON. Tuples become lists, and nothing else becomes anything else.
@dataclass(kw_only=True)
class _State:
    session_id: Annotated[str, PlainValidator(_session_id)]
    turn: Count
    sequence: Count
    tool_metadata: dict[str, Any]
    extra: dict[str, Any]


@dataclass(kw_only=True)
class _Stored(_State):
    messages: list[ChatMessage]
    unsent: list[Unsent]
    said: list[Message]


def _checked(kind: type[T], state: Mapping[str, Any]) -> T:
    """The state; ValueError says what no working memory could have, and where."""
    try:
        return adapter_of(kind).validate_python(state)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in fault["loc"])
        sentence = str(fault.get("ctx", {}).get("error", fault["msg"])).rstrip(".")
        raise ValueError(f"{place[1:]}: {sentence}.") from None


def _members(noun: Any) -> dict[str, Any]:
    """The fields of a message, a call or a write that have a value."""
    named = {it.name: getattr(noun, it.name) for it in fields_of(noun)}
    if "tool_calls" in named:
        named["tool_calls"] = list(map(_members, named["tool_calls"])) or None
    if "operation" in named:
        named = {"deed": named.pop("operation"), **named}
    return {name: it for name, it in named.items() if it is not None}


def _read(document: bytes) -> _Stored:
    """What was written; ValueError says what is wrong with the document."""
    try:
        state = json.loads(document.decode(errors="surrogatepass"))
    except ValueError as fault:
        raise ValueError(f"It is not JSON: {fault}.") from fault
    except RecursionError as fault:
        raise ValueError("It is nested too deeply.") from fault
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError("It is not a checkpoint of a working memory.")
    version = state.get("version")
    if not isinstance(version, int) or version < VERSION:
        raise ValueError("version is missing or wrong.")
    if version > VERSION:
        raise ValueError(NEWER.format(version))
    _plain(state, "")  # what could not be stored again is refused now
    return _checked(_Stored, state)


def _plain(value: Any, path: str, depth: int = 0) -> Any:
    """ValueError names the path of what JSON does not have.

    That is an object of Python, a key that is no text, a number that is infinite or of too many
    digits, and what lies more than 100 deep.
    """
    match value:
        case None | bool() | str():
            return value
        case int() | float():  # but none that could not be read again
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{_label(path)} is {value}, which JSON does not have.")
            try:
                str(value)
            except ValueError as fault:
                raise ValueError(f"{_label(path)} has too many digits.") from fault
            return value
        case Mapping() | list() | tuple() if depth >= DEEPEST:
            raise ValueError(f"{_label(path)} is nested more than {DEEPEST} levels deep.")
        case Mapping():
            steps = {key: _step(path, key) for key in value}
            return {key: _plain(value[key], step, depth + 1) for key, step in steps.items()}
        case list() | tuple():
            return [_plain(it, f"{path}[{n}]", depth + 1) for n, it in enumerate(value)]
        case _:
            raise ValueError(
                f"{_label(path)} has the type {type(value).__name__}, which JSON does not have."
            )


def _step(path: str, key: object) -> str:
    if not isinstance(key, str):
        raise ValueError(
            f"{_label(path)} has a key of the type {type(key).__name__}; keys of JSON are text."
        )
    if key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def _label(path: str) -> str:
    return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}..."
