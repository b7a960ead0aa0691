"""The summary of a session: deterministic, without a language model."""

import re
from collections.abc import Callable, Iterable

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
    """The digest of a conversation: message counts, and the first and the last user message."""

    messages: int = 0
    user: int = 0
    assistant: int = 0
    first: str = ""
    last: str = ""


def transcript(messages: Iterable[Message], clean: Callable[[str], str]) -> Transcript:
    """Digest a stream of messages; user messages are redacted before they are truncated."""
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


def summary(it: Transcript) -> str:
    """Render the summary of a conversation; empty if it has no messages."""
    if not it.messages:
        return ""
    counts = f"Session: {it.messages} messages ({it.user} user, {it.assistant} assistant). "
    started = STARTED + it.first if it.user else ""
    ended = ENDED + it.last if it.user > 1 else ""
    return counts + started + ended


def continued(before: Transcript, after: Transcript) -> Transcript:
    """Combine the digests of a conversation and of its continuation."""
    return Transcript(
        messages=before.messages + after.messages,
        user=before.user + after.user,
        assistant=before.assistant + after.assistant,
        first=before.first if before.user else after.first,
        last=after.last if after.user else before.last,
    )


def parsed_summary(text: str) -> Transcript:
    """Parse a summary back into its digest, empty if `summary` did not render the text.

    If the first message may end at several positions, the earliest wins.
    """
    counts = _COUNTS.match(text)
    if counts is None:
        return Transcript()
    messages, user, assistant = map(int, counts.groups())
    texts = text[counts.end() :].removeprefix(STARTED)
    ends = [(texts, texts)]
    if user > 1:
        marks = re.finditer(ENDED, texts[: _LONGEST + len(ENDED)])
        ends = [(texts[: it.start()], texts[it.end() :]) for it in marks]
    candidates = (
        Transcript(messages=messages, user=user, assistant=assistant, first=first, last=last)
        for first, last in ends
        if user + assistant <= messages and cut(first, SHOWN) == first and cut(last, SHOWN) == last
    )
    return next((it for it in candidates if summary(it) == text), Transcript())


_LONGEST = len(cut(" " * (SHOWN + 1), SHOWN))
_COUNTS = re.compile(
    r"Session: (\d{1,15}) messages \((\d{1,15}) user, (\d{1,15}) assistant\)\. ", re.ASCII
)
