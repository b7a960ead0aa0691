"""The messages of a conversation: what is none, what they weigh, what a transcript has of them."""

import re
from typing import Any

import pytest

from agentops_memory_client import Message
from agentops_memory_client.runtime import ChatMessage, ToolCall
from agentops_memory_client.runtime.conversation import line, tokens, unanswered

from ..support.agent_memory import call, calls, result
from ..support.samples import for_each

HALF, OTHER_HALF, UNKNOWN = "\ud83d", "\ude00", "\ufffd"


@for_each(
    "kind, fields, sentence",
    [
        (ChatMessage, {"role": "robot"}, ("The role of a message must be one of system, user, "
         "assistant, tool, not 'robot'.")),
        (ChatMessage, {"role": "user", "content": None},
         "The content of a message must be text, not NoneType."),
        (ChatMessage, {"role": "user", "tool_calls": (call("a"),)},
         "Only an assistant message has tool calls, not one of 'user'."),
        (ChatMessage, {"role": "assistant", "tool_calls": ({"id": "a"},)},
         "Each call of a message must be a ToolCall."),
        (ChatMessage, {"role": "tool"},
         "Exactly the messages with the role tool must have a tool_call_id."),
        (ChatMessage, {"role": "user", "tool_call_id": "a"},
         "Exactly the messages with the role tool must have a tool_call_id."),
        (ChatMessage, {"role": "tool", "tool_call_id": 1},
         "The id of a call must be text, not int."),
        (ToolCall, {"id": None, "name": "Bash"}, "The id of a call must be text, not NoneType."),
        (ToolCall, {"id": "a", "name": 7}, "The name of a tool must be text, not int."),
        (ToolCall, {"id": "a", "name": "Bash", "arguments": '{"command": "ls"}'},
         "The arguments of a call must be a mapping; parse the JSON first."),
    ],
)  # fmt: skip
def test_what_is_no_message_and_no_call_is_refused(
    kind: type, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        kind(**fields)


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

    assert unanswered(asked) == (call("a"), call("c"))
    assert unanswered([*asked, result("c"), result("a"), result("z")]) == ()

    again = [calls("a"), calls("b"), calls("a")]

    assert unanswered(again) == (call("b"), call("a"))
    assert unanswered([*again, result("a")]) == (call("b"),)
