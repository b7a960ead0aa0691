"""What leaves a conversation that has grown: whole blocks, from the front, and few of them."""

import sys
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentops_memory_client.runtime.conversation import ChatMessage, tokens, trimmed

from ..support.agent_memory import calls, conversations, result
from ..support.samples import examples

SYSTEM = ChatMessage.system("Be brief.")
ASKED = ChatMessage.user("What time is it?")
SAID = ChatMessage.assistant("Five past ten.")
TURN = [ASKED, SAID, calls("a"), result("a"), SAID]


def cuts(messages: Sequence[ChatMessage]) -> list[int]:
    """Where a cut parts no result from the latest call before it that has its id."""
    pairs = []
    for place, it in enumerate(messages):
        callers = [
            before
            for before in range(place)
            if it.tool_call_id in {call.id for call in messages[before].tool_calls}
        ]
        pairs += [(callers[-1], place)] if callers else []
    return [cut for cut in range(len(messages)) if not any(call < cut <= to for call, to in pairs)]


def kept(messages: Sequence[ChatMessage], budget: int) -> list[ChatMessage]:
    """What must stay: of all cuts the first that fits, or a later one that begins with a user."""
    others = [it for it in messages if it.role != "system"]
    places = cuts(others)
    if tokens(messages) <= budget or not places:
        return [*messages]

    def size(cut: int) -> int:
        return tokens([it for it in messages if it.role == "system"] + others[cut:])

    enough = next((cut for cut in places if size(cut) <= budget), places[-1])
    users = (cut for cut in places if cut >= enough and others[cut].role == "user")
    dropped, stays = next(users, enough), []
    for it in messages:
        if it.role == "system" or dropped == 0:
            stays.append(it)
        else:
            dropped -= 1
    return stays


@examples(150)
@given(conversations, st.integers(-5, 400))
@example([*TURN, SYSTEM, ASKED], tokens([*TURN, SYSTEM, ASKED]) - 1)
@example([calls("a"), result("a"), ASKED, calls("a"), result("a"), result("a")], 1)
@example([ASKED, calls("a", "b"), result("b"), ASKED, SAID, result("a")], 1)
@example([ASKED, calls("a"), calls("b"), result("a"), calls("c"), result("b"), result("c")], 1)
@example([ASKED, result("z"), SAID, result("y")], -1000)
@example([SYSTEM, ASKED, calls("a"), SYSTEM], 0)
@example(TURN, tokens(TURN))
@example(TURN, tokens(TURN[2:]))
def test_whole_blocks_leave_from_the_front_and_no_more_than_must(
    messages: list[ChatMessage], budget: int
) -> None:
    messages = [
        ChatMessage(
            role=it.role, content=f"{place} {it.content}",  # none is taken for another
            tool_calls=it.tool_calls, tool_call_id=it.tool_call_id,
        )
        for place, it in enumerate(messages)
    ]  # fmt: skip

    stays, dropped = trimmed(messages, budget)

    assert list(stays) == kept(messages, budget)
    assert list(dropped) == [it for it in messages if it not in stays]


@pytest.mark.slow
def test_the_work_grows_as_the_conversation_does() -> None:
    """In lines of the module that run, to drop half of the messages."""

    def steps(turns: int) -> int:
        messages = [
            message
            for turn in range(turns)
            for message in (ASKED, calls(str(turn), "same"), result(str(turn)), result("same"))
        ]
        half, lines, before = tokens(messages) // 2, 0, sys.gettrace()

        def traced(_frame: object, event: str, _: object) -> object:
            nonlocal lines
            lines += event == "line"
            return traced

        sys.settrace(traced)  # type: ignore[arg-type]
        try:
            trimmed(messages, half)
        finally:
            sys.settrace(before)
        return lines

    assert steps(2500) < 12 * steps(250)
