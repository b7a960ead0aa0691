"""Conversations of every shape, for the tests of the runtime kit."""

from hypothesis import strategies as st

from agentops_memory_client.runtime import ChatMessage, ToolCall

IDS = st.sampled_from("abcd")  # few, so that they are used again
TEXTS = st.sampled_from(["", "short", "some words more than that", "long " * 40])


def call(id: str, name: str = "Bash", **arguments: object) -> ToolCall:  # noqa: A002
    return ToolCall(id=id, name=name, arguments=arguments)


def calls(*ids: str) -> ChatMessage:
    """An assistant's message that calls a tool under each of these ids."""
    return ChatMessage.assistant(tool_calls=map(call, ids))


def result(id: str) -> ChatMessage:  # noqa: A002
    return ChatMessage.tool(id, "done")


messages = st.one_of(
    st.builds(ChatMessage.system, TEXTS), st.builds(ChatMessage.user, TEXTS),
    st.builds(ChatMessage.assistant, TEXTS), st.builds(ChatMessage.tool, IDS, TEXTS),
    st.builds(ChatMessage.assistant, TEXTS, st.lists(IDS.map(call), min_size=1, max_size=3)),
)  # fmt: skip
conversations = st.lists(messages, max_size=24)
