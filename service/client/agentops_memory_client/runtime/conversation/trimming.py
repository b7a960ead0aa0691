"""What leaves a conversation that has grown beyond its budget."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from .messages import ChatMessage, tokens

Messages = tuple[ChatMessage, ...]


def trimmed(messages: Sequence[ChatMessage], budget: int) -> tuple[Messages, Messages]:
    """The messages that stay within so many tokens, and those that are dropped; both in order.

    Nothing is dropped if all fits. Else system messages stay, wherever they
    are, and of the others an end of the conversation, cut between two blocks:

    - A block is a message, or an assistant's message with calls and everything
      up to the last of their results; blocks that overlap are one. A result is
      of the latest call before it with its id.
    - The newest block stays, even if it alone is too large.
    - As few blocks as possible are dropped; but if what then stays does not
      begin with a user's message, and a later block does, all before that one.

    So what stays fits, or is the newest block with the system messages alone;
    and a larger budget never keeps less.
    """
    cut = _cut(messages, budget)
    kept: list[ChatMessage] = []
    dropped: list[ChatMessage] = []
    for index, message in enumerate(messages):
        stays = index >= cut or message.role == "system"
        (kept if stays else dropped).append(message)
    return tuple(kept), tuple(dropped)


def _cut(messages: Sequence[ChatMessage], budget: int) -> int:
    """Where what stays begins."""
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
    turns = (index for index in starts if index >= enough and messages[index].role == "user")
    return next(turns, enough)


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
