"""What leaves a conversation that has grown: whole blocks, from the front, and no more than must.

The tests of examples say what stays; those of properties hold for any conversation.
"""

import sys
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentops_memory_client.runtime.conversation import ChatMessage, tokens, trimmed

from ..support.agent_memory import calls, conversations, result
from ..support.samples import examples

EXAMPLES = examples(150)
budgets = st.integers(-5, 400)

SYSTEM = ChatMessage.system("Be brief.")
ASKED = ChatMessage.user("What time is it?")
ASKED_AGAIN = ChatMessage.user("And now, what time is it now?")
SAID = ChatMessage.assistant("Five past ten.")


def kept(budget: int, *messages: ChatMessage) -> list[ChatMessage]:
    return list(trimmed(messages, budget)[0])


def room(*messages: ChatMessage) -> int:
    return tokens(messages)


def test_the_oldest_turns_are_dropped_and_the_newest_block_stays() -> None:
    first, second = (ASKED, calls("a"), result("a")), (ASKED_AGAIN, SAID)

    assert kept(room(*first, *second) - 1, *first, *second) == list(second)

    turn = (ASKED, SAID, calls("a"), result("a"), SAID)

    assert kept(room(*turn, ASKED_AGAIN) - 1, *turn, ASKED_AGAIN) == [ASKED_AGAIN]

    old, new = (calls("a"), result("a")), (calls("b"), result("b"), SAID)

    assert kept(room(*new), ASKED, *old, *new) == list(new)
    assert kept(room(*new) - 1, ASKED, *old, *new) == [SAID]

    block = (calls("a", "b"), result("b"), result("a"))

    for budget in (room(*block) - 1, 1, 0, -1000):
        assert kept(budget, ASKED, *block) == list(block)


def test_system_messages_stay_and_nothing_is_dropped_while_all_fits() -> None:
    late = ChatMessage.system("It is late.")
    talk = (SYSTEM, ASKED, calls("a"), late, result("a"), SYSTEM, ASKED_AGAIN)

    assert kept(0, *talk) == [SYSTEM, late, SYSTEM, ASKED_AGAIN]
    assert kept(room(SYSTEM, ASKED_AGAIN), SYSTEM, ASKED, ASKED_AGAIN) == [SYSTEM, ASKED_AGAIN]
    assert kept(room(*talk), *talk) == list(talk)
    assert trimmed((), -1) == ((), ())


def test_a_call_and_its_results_are_one_block_with_what_stands_between() -> None:
    block = (calls("a", "b"), result("b"), ASKED_AGAIN, SAID, result("a"))

    assert kept(1, ASKED, *block) == list(block)
    assert kept(room(*block), ASKED, *block, ASKED) == [ASKED]

    blocks = (calls("a"), calls("b"), result("a"), calls("c"), result("b"), result("c"))

    assert kept(1, ASKED, *blocks) == list(blocks)

    old, new = (calls("a"), result("a")), (calls("a"), result("a"), result("a"))

    assert kept(1, ASKED, *old, *new) == list(new)
    assert kept(1, ASKED, calls("a"), *new) == list(new)

    assert kept(1, ASKED, result("z"), SAID, result("y")) == [result("y")]
    assert kept(1, ASKED, SAID, calls("a")) == [calls("a")]


@EXAMPLES
@given(conversations, budgets, st.integers(0, 100))
@example([calls("a"), result("a"), ASKED, calls("a"), result("a")], 1, 0)
def test_what_stays_is_an_end_of_whole_blocks_that_fits_and_the_system_messages(
    messages: list[ChatMessage], budget: int, more: int
) -> None:
    messages = unlike(messages)
    stays, dropped = trimmed(messages, budget)
    least, _ = trimmed(messages, -sys.maxsize)

    assert systems(stays) == systems(messages)
    assert [*dropped, *others(stays)] == others(messages)
    pairs = list(answered(messages))
    assert [pair for pair in pairs if pair[0] in stays] == list(answered(stays))
    assert [pair for pair in pairs if pair[0] in dropped] == list(answered(dropped))
    assert tokens(stays) <= budget or stays == least
    assert trimmed(stays, budget) == (stays, ())
    assert len(stays) <= len(trimmed(messages, budget + more)[0])
    begun = others(stays)
    if dropped and begun[0].role != "user":  # where it can, it begins with a user
        users = [place for place, it in enumerate(begun) if it.role == "user"]
        assert all(is_inside(begun, place) for place in users)


@EXAMPLES
@given(conversations, budgets)
def test_no_more_is_dropped_than_must_be(messages: list[ChatMessage], budget: int) -> None:
    """What went last would not fit, or would put another's words at the beginning."""
    stays, dropped = trimmed(messages, budget)
    whole = others(messages)
    cuts = [place for place in range(len(dropped)) if not is_inside(whole, place)]

    for cut in cuts:
        more = tokens([*systems(messages), *whole[cut:]])
        assert more > budget or (cut > 0 and whole[cut].role != "user"), cut
    if dropped and others(stays)[0].role != "user":
        assert all(tokens([*systems(messages), *whole[cut:]]) > budget for cut in cuts)


@pytest.mark.slow
def test_the_work_grows_as_the_conversation_does() -> None:
    def steps(turns: int) -> int:
        messages = [
            message
            for turn in range(turns)
            for message in (ASKED, calls(str(turn), "same"), result(str(turn)), result("same"))
        ]
        return executed(messages)

    assert steps(2500) < 12 * steps(250)


def executed(messages: list[ChatMessage]) -> int:
    """How many lines of the module run, to drop half of the messages."""
    lines = 0

    def traced(_frame: object, event: str, _: object) -> object:
        nonlocal lines
        lines += event == "line"
        return traced

    half, before = tokens(messages) // 2, sys.gettrace()
    sys.settrace(traced)  # type: ignore[arg-type]
    try:
        trimmed(messages, half)
    finally:
        sys.settrace(before)
    return lines


def unlike(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The same, each with a text of its own, so that one is not taken for another."""
    return [
        ChatMessage(
            role=it.role, content=f"{place} {it.content}",
            tool_calls=it.tool_calls, tool_call_id=it.tool_call_id,
        )
        for place, it in enumerate(messages)
    ]  # fmt: skip


def answered(messages: Sequence[ChatMessage]) -> Iterator[tuple[ChatMessage, ChatMessage]]:
    """Each result behind the message with its call, found by looking back."""
    for place, it in enumerate(messages):
        for before in reversed(messages[:place]):
            if it.tool_call_id in {one.id for one in before.tool_calls}:
                yield before, it
                break


def is_inside(messages: Sequence[ChatMessage], place: int) -> bool:
    """Whether a cut before this place would part a call from its result."""
    after = unlike(messages)
    return any(after.index(a) < place <= after.index(b) for a, b in answered(after))


def systems(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    return [it for it in messages if it.role == "system"]


def others(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    return [it for it in messages if it.role != "system"]
