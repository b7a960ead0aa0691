"""The messages of a conversation: what is none, their weight, and which leave it first."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from agentops_memory_client import Message
from agentops_memory_client.runtime import ChatMessage, ToolCall, WorkingMemory
from agentops_memory_client.runtime.working_memory import line, tokens, trimmed

from ..support.agent_memory import call, calls, conversations, result
from ..support.samples import examples, for_each

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
@example([ASKED, SAID] * 3, tokens([ASKED, SAID] * 2))
@example([ASKED, SAID] * 3, tokens([ASKED, SAID] * 2) - 1)
@example(TURN, tokens(TURN))
@example(TURN, tokens(TURN[2:]))
def test_whole_blocks_leave_from_the_front_and_no_more_than_must(
    messages: list[ChatMessage], budget: int
) -> None:
    messages = [  # each an object of its own, so that none is taken for another
        ChatMessage(
            role=it.role, content=it.content, tool_calls=it.tool_calls, tool_call_id=it.tool_call_id
        )
        for it in messages
    ]

    stays, dropped = (list(map(id, part)) for part in trimmed(messages, budget))

    assert stays == list(map(id, kept(messages, budget)))
    assert dropped == [it for it in map(id, messages) if it not in stays]


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


HALF, OTHER_HALF, UNKNOWN = "\ud83d", "\ude00", "\ufffd"


@for_each(
    "kind, fields, sentence",
    [
        (ChatMessage, {"role": "robot"}, "role\n.*'system', 'user', 'assistant' or 'tool'"),
        (ChatMessage, {"role": "user", "content": None}, "content\n.*valid string"),
        (ChatMessage, {"role": "user", "tool_calls": (call("a"),)},
         "Only an assistant message has tool calls, not one of 'user'."),
        (ChatMessage, {"role": "assistant", "tool_calls": ({"id": "a"},)},
         "tool_calls.0.name\n.*required"),
        (ChatMessage, {"role": "tool"},
         "Exactly the messages with the role tool must have a tool_call_id."),
        (ChatMessage, {"role": "user", "tool_call_id": "a"},
         "Exactly the messages with the role tool must have a tool_call_id."),
        (ChatMessage, {"role": "tool", "tool_call_id": 1}, "tool_call_id\n.*valid string"),
        (ToolCall, {"id": None, "name": "Bash"}, "id\n.*valid string"),
        (ToolCall, {"id": "a", "name": 7}, "name\n.*valid string"),
        (ToolCall, {"id": "a", "name": "Bash", "arguments": '{"secret": "ls"}'},
         "arguments\n.*valid dictionary"),
    ],
)  # fmt: skip
def test_what_is_no_message_and_no_call_is_refused(
    kind: type, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as refusal:
        kind(**fields)
    assert "secret" not in str(refusal.value)


def test_a_token_is_four_bytes_and_a_message_four_tokens_more_with_its_calls() -> None:
    assert tokens([]) == 0
    assert [tokens([ChatMessage.user("x" * n)]) for n in (0, 1, 4, 5)] == [4, 5, 5, 6]
    assert tokens([ChatMessage.user("數據庫")]) == 4 + 3
    assert tokens([ChatMessage.user("x"), ChatMessage.user("x")]) == 10

    ran = ToolCall(id="a", name="Bash", arguments={"path": "é"})  # {"path":"é"} is of 13 bytes

    assert tokens([ChatMessage.assistant(tool_calls=[ran, ran])]) == 4 + 2 * (1 + 4)


def test_a_line_of_a_transcript_has_whole_characters() -> None:
    said = line(ChatMessage.user(f"{HALF} {OTHER_HALF} {HALF}{OTHER_HALF}"))

    assert said == Message(role="user", content=f"{UNKNOWN} {UNKNOWN} 😀")
    assert tokens([ChatMessage.user(HALF)]) == 4 + 1

    said = line(ChatMessage.user("x" + "é" * 2_500))

    assert said == Message(role="user", content="x" + "é" * 2_499)


def test_a_transcript_has_the_text_and_the_names_of_tools() -> None:
    both = ChatMessage.assistant("Let me look.", [call("a", command="ls"), call("b", "Read")])

    assert line(both) == Message(
        role="assistant", content="Let me look.\n[tool_call: Bash]\n[tool_call: Read]"
    )
    assert line(result("a")) == Message(role="tool", content="done")
    assert line(ChatMessage.system("Be brief.")) is None
    assert line(ChatMessage.user(" \n")) is None


def test_a_call_is_unanswered_as_long_as_a_result_can_come() -> None:
    asked = [calls("a", "b"), result("b"), ChatMessage.user("And?"), calls("c")]

    assert WorkingMemory(asked).unanswered() == (call("a"), call("c"))
    assert WorkingMemory([*asked, result("c"), result("a"), result("z")]).unanswered() == ()

    again = [calls("a"), calls("b"), calls("a")]

    assert WorkingMemory(again).unanswered() == (call("b"), call("a"))
    assert WorkingMemory([*again, result("a")]).unanswered() == (call("b"),)
