"""The summary of a session: deterministic, without a language model."""

import re
from collections.abc import Callable, Iterable, Iterator

from ..light import dataclass
from .text import cut

STARTED, ENDED = "Started with: ", " Ended with: "
SHOWN = 200  # code points of the first and the last user message


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The digest of a conversation: its counts, and the first and the last user message."""

    messages: int = 0
    user: int = 0
    assistant: int = 0
    first: str = ""
    last: str = ""
    redacted: int = 0  # secrets removed


def transcript(messages: Iterable[Message], clean: Callable[[str], str]) -> Transcript:
    """The digest of a conversation, streamed; messages are redacted before they are truncated."""
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
    """The summary of a conversation; empty for one without messages."""
    if not of.messages:
        return ""
    counts = f"Session: {of.messages} messages ({of.user} user, {of.assistant} assistant). "
    started = STARTED + of.first if of.user else ""
    ended = ENDED + of.last if of.user > 1 else ""
    return counts + started + ended


def continued(before: Transcript, after: Transcript) -> Transcript:
    """The digest of a conversation and its continuation."""
    return Transcript(
        messages=before.messages + after.messages,
        user=before.user + after.user,
        assistant=before.assistant + after.assistant,
        first=before.first if before.user else after.first,
        last=after.last if after.user else before.last,
    )


def parsed_summary(text: str) -> Transcript:
    """The digest that a summary was rendered from; an empty one if `summary` did not write it.

    If the first message could end at several places, that at which more of the two
    messages have the length of a truncated one wins, and of those the earliest.
    """
    counts = _COUNTS.match(text)
    if counts is None:
        return Transcript()
    messages_text = text[counts.end() :].removeprefix(STARTED)
    messages, user, assistant = map(int, counts.groups())
    read = (
        Transcript(messages=messages, user=user, assistant=assistant, first=first, last=last)
        for first, last in (_ends(messages_text) if user > 1 else [(messages_text, messages_text)])
    )
    return max(
        (
            it
            for it in read
            if it.user + it.assistant <= it.messages
            and all(cut(end, SHOWN) == end for end in (it.first, it.last))
            and summary(it) == text
        ),
        key=lambda it: sum(len(end) > SHOWN for end in (it.first, it.last)),
        default=Transcript(),
    )


def _ends(text: str) -> Iterator[tuple[str, str]]:
    """The first and the last message, for each possible end of the first."""
    at = text.find(ENDED, 0, _LONGEST + len(ENDED))
    while at >= 0:
        yield text[:at], text[at + len(ENDED) :]
        at = text.find(ENDED, at + 1, _LONGEST + len(ENDED))


_LONGEST = len(cut(" " * (SHOWN + 1), SHOWN))
_COUNTS = re.compile(
    r"Session: (\d{1,15}) messages \((\d{1,15}) user, (\d{1,15}) assistant\)\. ", re.ASCII
)
