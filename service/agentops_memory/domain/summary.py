"""The deterministic summary of a session: no model, the same messages give the same bytes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .text import cut

SHOWN = 200  # code points of the first and the last user message


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One line of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What a summary needs of a conversation: the counts, and two lines of it."""

    messages: int = 0
    user: int = 0
    assistant: int = 0
    first: str = ""
    last: str = ""
    redacted: int = 0  # secrets that were kept out


def transcript(messages: Iterable[Message], clean: Callable[[str], str]) -> Transcript:
    """The digest of a conversation, however long: few messages are held at a time.

    What is kept of it is cleaned whole before it is cut.
    """
    total = assistant = user = 0
    first = last = ""
    for message in messages:
        total += 1
        assistant += message.role == "assistant"
        if message.role == "user":
            user += 1
            last = message.content
            first = cut(clean(last), SHOWN) if user == 1 else first
    last = cut(clean(last), SHOWN) if user > 1 else first
    return Transcript(messages=total, user=user, assistant=assistant, first=first, last=last)


def summary(of: Transcript) -> str:
    """The summary of a conversation; the empty string for one without messages."""
    if not of.messages:
        return ""
    counts = f"Session: {of.messages} messages ({of.user} user, {of.assistant} assistant). "
    started = f"Started with: {of.first}" if of.user else ""
    ended = f" Ended with: {of.last}" if of.user > 1 else ""
    return counts + started + ended
