"""The working memory of an agent: its conversation and state, which survive a crash."""

import os
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Self

from .. import Message
from . import checkpoint, document
from .checkpoint import CheckpointError
from .conversation import ChatMessage, ToolCall, line, require, tokens, trimmed, unanswered
from .unsent import Unsent

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
        document.check_session_id(self.session_id)
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
            return document.written(self._state())
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
            state = document.read(checkpoint.read(path))
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

    def _state(self) -> document.State:
        return document.State(
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
    def _of(cls, state: document.State) -> Self:
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
