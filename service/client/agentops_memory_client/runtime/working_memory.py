"""The working memory of an agent: its conversation and state, which survive a crash."""

import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from .. import Message
from . import checkpoint
from .checkpoint import CheckpointError
from .conversation import ChatMessage, ToolCall, line, require, tokens, trimmed, unanswered
from .unsent import Unsent

T = TypeVar("T")

FORMAT = "agentops-memory working memory"
VERSION = 1
DEEPEST = 100  # lists and objects in one another, as in what the service takes
MAX_SESSION_ID = 500  # code points, as the service takes them
MAX_PATH = 120  # characters of it in a sentence

NEWER = f"It is of version {{}}, and this program reads none above {VERSION}; a newer one wrote it."
KINDS = {str: "text", int: "a whole number", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a checkpoint holds; ValueError for what no working memory could have."""

    session_id: str
    turn: int
    sequence: int
    messages: Sequence[ChatMessage]
    tool_metadata: Mapping[str, Any]
    extra: Mapping[str, Any]
    unsent: Sequence[Unsent]
    pending: Sequence[Message]

    def __post_init__(self) -> None:
        check_session_id(self.session_id)
        for name in ("turn", "sequence"):
            if _checked(name, getattr(self, name), int) < 0:
                raise ValueError(f"{name} is below 0.")
        for name in ("tool_metadata", "extra"):
            _checked(name, getattr(self, name), dict)


def check_session_id(given: object) -> None:
    """ValueError for what cannot be the id of a session."""
    given = _checked("session_id", given, str)
    if not given.strip() or len(given) > MAX_SESSION_ID:
        raise ValueError(
            f"session_id must have 1 to {MAX_SESSION_ID} characters, and not be blank."
        )


def written_state(state: State) -> bytes:
    """The state as a document; tuples become lists, and nothing else becomes anything else.

    ValueError names the path of what JSON does not have: an object of Python,
    a key that is no text, a number that is infinite or of too many digits,
    and what lies more than 100 deep.
    """
    try:
        text = json.dumps(_document(state), ensure_ascii=False, separators=(",", ":"))
    except RecursionError as fault:
        raise ValueError("It is nested too deep.") from fault
    return text.encode(errors="surrogatepass")  # half a character comes back as it was


def read_state(document: bytes) -> State:
    """The state that was written; ValueError says what is wrong with the document."""
    try:
        given = json.loads(document.decode(errors="surrogatepass"), parse_constant=_refused)
    except ValueError as fault:
        raise ValueError(f"It is no JSON: {fault}.") from fault
    except RecursionError as fault:
        raise ValueError("It is nested too deep.") from fault
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise ValueError("It is no checkpoint of a working memory.")
    _plain(given, "")  # what could not be stored again is refused now
    if (version := _field(int, given, "version")) != VERSION:
        raise ValueError((NEWER if version > VERSION else "version is below 1.").format(version))
    return State(
        session_id=_field(str, given, "session_id"),
        turn=_field(int, given, "turn"),
        sequence=_field(int, given, "sequence"),
        messages=_each(given, "messages", _message),
        tool_metadata=_field(dict, given, "tool_metadata"),
        extra=_field(dict, given, "extra"),
        unsent=_each(given, "unsent", _unsent),
        pending=_each(given, "said", _line),
    )


def _document(state: State) -> dict[str, Any]:
    """Fields that the dataclasses validate are copied; the rest is converted to JSON's types."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "session_id": state.session_id,
        "turn": _number(state.turn, "turn"),
        "sequence": _number(state.sequence, "sequence"),
        "messages": [_of_message(it, f"messages[{n}]") for n, it in enumerate(state.messages)],
        "tool_metadata": _plain(state.tool_metadata, "tool_metadata", depth=1),
        "extra": _plain(state.extra, "extra", depth=1),
        "unsent": [_of_unsent(it, f"unsent[{n}]") for n, it in enumerate(state.unsent)],
        "said": [_of_line(it, f"said[{n}]") for n, it in enumerate(state.pending)],
    }


def _plain(value: Any, path: str, depth: int = 0) -> Any:
    """The value as JSON has it."""
    match value:
        case None | bool() | str():
            return value
        case int() | float():
            return _number(value, path)
        case Mapping() | list() | tuple() if depth >= DEEPEST:
            raise ValueError(f"{_shown(path)} lies more than {DEEPEST} deep.")
        case Mapping():
            steps = {key: _step(path, key) for key in value}
            return {key: _plain(value[key], step, depth + 1) for key, step in steps.items()}
        case list() | tuple():
            return [_plain(it, f"{path}[{n}]", depth + 1) for n, it in enumerate(value)]
        case _:
            raise ValueError(
                f"{_shown(path)} is of the type {type(value).__name__}; JSON has none."
            )


def _number(value: float, path: str) -> float:
    """An int or a float; not one that could not be read again."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{_shown(path)} is {value}; JSON has none.")
    try:
        str(value)
    except ValueError as fault:
        raise ValueError(f"{_shown(path)} has too many digits.") from fault
    return value


def _step(path: str, key: object) -> str:
    if not isinstance(key, str):
        raise ValueError(
            f"{_shown(path)} has a key of the type {type(key).__name__}; JSON has text."
        )
    if key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def _shown(path: str) -> str:
    return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}..."


def _of_message(message: ChatMessage, path: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [
            _of_call(call, f"{path}.tool_calls[{n}]") for n, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def _of_call(call: ToolCall, path: str) -> dict[str, Any]:
    arguments = _plain(call.arguments, f"{path}.arguments", depth=5)
    return {"id": call.id, "name": call.name, "arguments": arguments}


def _of_unsent(unsent: Unsent, path: str) -> dict[str, Any]:
    fields = _plain(unsent.fields, f"{path}.fields", depth=3)
    trace = _plain(unsent.trace, f"{path}.trace", depth=3)
    return {"deed": unsent.operation, "fields": fields, "key": unsent.key, "trace": trace}


def _of_line(line: Message, path: str) -> dict[str, Any]:
    fields: dict[str, Any] = _plain({"role": line.role, "content": line.content}, path, depth=2)
    return fields


def _message(given: Mapping[str, Any]) -> ChatMessage:
    calls = _each(given, "tool_calls", _call) if "tool_calls" in given else ()
    return ChatMessage(
        role=given.get("role"),  # type: ignore[arg-type]  # as below: the noun refuses a wrong one
        content=_field(str, given, "content"),
        tool_calls=calls,
        tool_call_id=given.get("tool_call_id"),
    )


def _call(given: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        id=_field(str, given, "id"),
        name=_field(str, given, "name"),
        arguments=_field(dict, given, "arguments"),
    )


def _unsent(given: Mapping[str, Any]) -> Unsent:
    return Unsent(
        operation=given.get("deed"),  # type: ignore[arg-type]
        fields=_field(dict, given, "fields"),
        key=_field(str, given, "key"),
        trace=_field(dict, given, "trace"),
    )


def _line(given: Mapping[str, Any]) -> Message:
    return Message(role=_field(str, given, "role"), content=_field(str, given, "content"))


def _each(
    given: Mapping[str, Any], name: str, noun: Callable[[Mapping[str, Any]], T]
) -> tuple[T, ...]:
    """A list of nouns; an error names the path of the invalid one."""
    nouns = []
    for index, it in enumerate(_field(list, given, name)):
        try:
            nouns.append(noun(_checked("It", it, dict)))
        except ValueError as fault:
            raise ValueError(f"{name}[{index}]: {fault}") from fault
    return tuple(nouns)


def _field(kind: type[T], given: Mapping[str, Any], name: str) -> T:
    """A field that must be there, of this kind."""
    if name not in given:
        raise ValueError(f"{name} is missing.")
    return _checked(name, given[name], kind)


def _checked(name: str, value: object, kind: type[T]) -> T:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(f"{name} is not {KINDS[kind]}.")
    return value


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


FilePath = str | os.PathLike[str]


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
        self,
        messages: Iterable[ChatMessage] = (),
        *,
        session_id: str | None = None,
        turn: int = 0,
        tool_metadata: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin with these messages; a session without an id gets a new one.

        ValueError for an id that the service would not take.
        """
        self.session_id = str(uuid.uuid4()) if session_id is None else session_id
        check_session_id(self.session_id)
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
                raise TypeError(f"A message is a ChatMessage, not {type(message).__name__}.")
        self._messages.extend(messages)
        if self.is_recorded:
            self.pending.extend(filter(None, map(line, messages)))

    def tokens(self) -> int:
        """About how many tokens the messages are, as `messages.tokens` has it."""
        return tokens(self._messages)

    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls without a result by now: after a crash, what to run again or to answer.

        A call whose id was used again is not among them, as a result would be
        that of the later one.
        """
        return unanswered(self._messages)

    def trim_to_token_budget(self, budget: int) -> tuple[ChatMessage, ...]:
        """Drop the oldest messages until the others fit; those dropped, oldest first.

        System messages stay, and so does the newest block even if it alone is
        too large; a call and its results stay or go together; what stays begins
        with a user's message where it can. `trimming.trimmed` has the whole
        promise. What is known of the calls that go, goes with them.
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
        try:
            return written_state(self._state())
        except ValueError as fault:
            raise CheckpointError(f"The working memory cannot be stored: {fault}") from fault

    def checkpoint(self, path: FilePath) -> None:
        """Store the state: whatever happens, the file has this state or the one before.

        `checkpoint.write` has the whole promise. CheckpointError as for
        `snapshot`, OSError if it cannot be written; the file is then as it was.
        """
        checkpoint.write(path, self.snapshot())

    @classmethod
    def restore(cls, path: FilePath) -> Self:
        """The working memory that was stored there.

        FileNotFoundError if there is none; CheckpointError for a file that
        holds none, or that of a newer version.
        """
        try:
            state = read_state(checkpoint.read(path))
        except ValueError as fault:
            raise CheckpointError(f"The checkpoint {path} cannot be read: {fault}") from fault
        return cls._of(state)

    @classmethod
    def resume(cls, path: FilePath) -> Self:
        """The working memory that was stored there, or a new one if there is none."""
        try:
            return cls.restore(path)
        except FileNotFoundError:
            return cls()

    def _state(self) -> State:
        return State(
            session_id=self.session_id,
            turn=self.turn,
            sequence=self.sequence,
            messages=self._messages,
            tool_metadata=self.tool_metadata,
            extra=self.extra,
            unsent=self.unsent,
            pending=self.pending,
        )

    @classmethod
    def _of(cls, state: State) -> Self:
        memory = cls(
            state.messages,
            session_id=state.session_id,
            turn=state.turn,
            tool_metadata=state.tool_metadata,
            extra=state.extra,
        )
        memory.sequence = state.sequence
        memory.unsent = list(state.unsent)
        memory.pending = list(state.pending)
        return memory


def _calls(messages: Iterable[ChatMessage]) -> set[str]:
    return {call.id for message in messages for call in message.tool_calls}
