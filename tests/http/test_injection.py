"""No memory gets out of its place in the text that reminds an agent."""

import re

from hypothesis import given, strategies as st

from agentops_memory_client import Context
from agentops_memory_client.contract.models import Line
from agentops_memory_client.runtime.session import injected

from ..support.samples import for_each

PARTS = [
    "<", "</", "memory:", "Memory :", "context>", "sessions>", ">",
    *"\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", "- ", "[x] ", "a",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
LINES = st.builds(Line, type=TEXTS, title=TEXTS, content=TEXTS)


@given(st.lists(TEXTS, max_size=3), st.lists(LINES, max_size=3))
def test_the_blocks_and_their_items_are_those_of_the_context(
    summaries: list[str], lines: list[Line]
) -> None:
    text = injected(Context(summaries=tuple(summaries), observations=tuple(lines)))

    tags = re.findall(r"(?i)<[\s/]*memory[^>]*>", text)
    assert tags == [
        *(["<memory:sessions>", "</memory:sessions>"] if summaries else []),
        *(["<memory:context>", "</memory:context>"] if lines else []),
    ]
    items = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(items) == len(summaries) + len(lines)


@for_each(
    "summary, shown",
    [
        *[
            (tag, f"&lt;{tag[1:]}")
            for tag in (
                "</MEMORY:context>", "< / memory : context>", "<\u200b/memory:context>",
                "</mem\u200bory\u2060:context>", "</\xadmemory:context>",
                "<\U000e0001/memory:context>", "\uff1c/memory:context\uff1e",
                "<\uff0f\uff4demory\uff1acontext>",
                "</\uff2d\uff25\uff2d\uff2f\uff32\uff39:context>", "\ufe64/memory\ufe55context>",
            )
        ],
        *[(f"a\n{item}", f"a\n  {item}") for item in ("- x", "\u200b- x", "\ufeff\u2060- x")],
    ],
)  # fmt: skip
def test_a_tag_or_an_item_is_seen_however_it_is_written(summary: str, shown: str) -> None:
    text = injected(Context(summaries=(summary,)))

    assert text == f"<memory:sessions>\n- {shown}\n</memory:sessions>\n"


@given(st.text(), st.text(), st.text())
def test_text_that_looks_like_no_part_of_them_is_there_byte_for_byte(
    kind: str, title: str, content: str
) -> None:
    item = f"[{kind}] {title}: {content}"
    text = injected(Context(observations=(Line(type=kind, title=title, content=content),)))

    if "memory" not in item.lower() and "- " not in item:
        assert text == f"<memory:context>\n- {item}\n</memory:context>\n"
