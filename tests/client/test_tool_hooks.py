"""What tool hooks do with a call: which rule decides, what is saved, what is asked."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentops_memory_client import MemoryClient
from agentops_memory_client.runtime import InjectRule, Pattern, SaveRule, ToolHooks
from agentops_memory_client.runtime.hooks import Capture, Question
from agentops_memory_client.runtime.working_memory import ToolCall

from ..support.forks import SOURCES
from ..support.samples import for_each
from ..support.service import serving

# The example of the concept that the platform was built from.
EXAMPLE = """\
toolHooks:
  # Auto-save tool results as observations
  memorySaveRules:
    - tool: bash
      matchOutput: "error|panic|fatal"
      type: bugfix
      scope: project
    - tool: kubectl_apply
      type: decision
      scope: project

  # Pre-execution memory queries
  contextInjectTools:
    - tool: bash
      query: from_tool_args    # use the tool's arguments as search query
      limit: 3
"""


def call(tool: str = "bash", **arguments: Any) -> ToolCall:
    return ToolCall(id="1", name=tool, arguments=arguments)


def saving(**fields: Any) -> ToolHooks:
    return ToolHooks(save_rules=(SaveRule(tool="bash", **fields),))


def asking(query: str = "from_tool_args", **fields: int) -> ToolHooks:
    return ToolHooks(inject_rules=(InjectRule(tool="bash", query=query, **fields),))


def test_the_example_of_the_concept_does_what_it_says() -> None:
    hooks = ToolHooks.from_yaml(EXAMPLE)

    assert hooks.capture(call(command="make"), "all well") is None
    assert hooks.capture(call(command="make"), "fatal: no rule") == Capture(
        type="bugfix", scope="project", title="Auto-captured: bash — make",
        content="fatal: no rule", tags=("auto-capture", "hook", "bash"),
    )  # fmt: skip
    assert hooks.capture(call("kubectl_apply"), "configured") == Capture(
        type="decision", scope="project", title="Auto-captured: kubectl_apply",
        content="configured", tags=("auto-capture", "hook", "kubectl_apply"),
    )  # fmt: skip
    assert hooks.capture(call("read"), "error") is None
    assert hooks.question(call(command="make")) == Question(query="make", limit=3)
    assert hooks.question(call("kubectl_apply", command="make")) is None


def test_the_first_rule_of_a_tool_decides_also_when_it_does_not_match() -> None:
    first = SaveRule(tool="bash", match_output=Pattern("error"))
    second, other = SaveRule(tool="bash"), SaveRule(tool="read", type="config")
    hooks = ToolHooks(
        save_rules=(other, first, second),
        inject_rules=(InjectRule(tool="bash", query="from_tool_args"),
                      InjectRule(tool="bash", query="words")),
    )  # fmt: skip

    assert hooks.capture(call(), "fine") is None
    assert hooks.capture(call(), "an error")
    assert hooks.capture(call("Bash"), "an error") is None
    assert hooks.question(call()) is None


def test_a_pattern_is_searched_in_the_output_and_in_each_argument_that_is_named() -> None:
    hooks = saving(
        match_output=Pattern("(?i)ERROR"),
        match_args={"command": Pattern("^git (push|pull)"), "path": Pattern("")},
    )
    cases: dict[bool, list[tuple[str, Mapping[str, Any]]]] = {
        True: [("an Error", {"command": "git push", "path": "/a"}),
               ("error", {"command": "git pull x", "path": "", "more": 1})],
        False: [("fine", {"command": "git push", "path": "/a"}),
                ("error", {"command": "a git push", "path": "/a"}),
                ("error", {"command": "git push"}),
                ("error", {"command": ["git push"], "path": "/a"}),
                ("error", {"command": "git push", "path": None}),
                ("error", {"command": "git push", "path": 7}),
                ("error", {})],
    }  # fmt: skip

    for is_saved, calls in cases.items():
        for output, arguments in calls:
            assert bool(hooks.capture(call(**arguments), output)) is is_saved, arguments


def test_a_title_names_the_command_or_path_and_a_content_is_a_thousand_code_points() -> None:
    told = "Auto-captured: bash"
    for arguments, title in (
        ({}, told), ({"command": "ls", "path": "/a"}, f"{told} — ls"),
        ({"path": "/a", "query": "q"}, f"{told} — /a"), ({"query": "q"}, told),
        ({"command": " ", "path": "/a"}, f"{told} — /a"), ({"command": ["ls"], "path": 3}, told),
        ({"command": "é😀" * 40 + "x"}, f"{told} — {'é😀' * 40}"),
        ({"command": "a\nb"}, f"{told} — a\nb"),
    ):  # fmt: skip
        capture = saving().capture(call(**arguments), "x")
        assert capture
        assert (capture.title, capture.type, capture.scope) == (title, "discovery", "project")
    for output, content in (
        ("😀" * 1_001, "😀" * 1_000), ("x" * 1_000, "x" * 1_000), (" x ", " x "),
        (" " * 1_000 + "late", "late"), (" " * 999 + "xy", " " * 999 + "x"), ("", None),
        (" ", None), ("\n\t\u2003\x1c", None),
    ):  # fmt: skip
        capture = saving().capture(call(), output)
        assert (capture.content if capture else None) == content
    assert ToolHooks().capture(call(), "x") is None


def test_a_query_is_the_command_the_query_or_the_path_or_words_of_its_own() -> None:
    for arguments, query in (
        ({"path": "/a", "query": "q", "command": "c"}, "c"),
        ({"path": "/a", "query": "q", "command": " "}, "q"),
        ({"path": "/a", "query": 7, "command": None}, "/a"), ({"path": "", "text": "x"}, None),
        ({}, None),
    ):  # fmt: skip
        expected = Question(query=query, limit=3) if query else None
        assert asking().question(call(**arguments)) == expected
    assert asking("what failed", limit=9).question(call()) == Question(query="what failed", limit=9)
    assert ToolHooks().question(call(command="x")) is None


def test_a_pattern_sees_the_whole_output_in_linear_time() -> None:
    assert saving(match_output=Pattern("end$")).capture(call(), "x" * 5_000 + "end")

    evil = Pattern("(a+)+$")

    assert not evil.is_in("a" * 1_000_000 + "!")
    assert evil.is_in("a" * 1_000_000)

    assert Pattern("^a.c$").is_in("a\ud800c")
    assert Pattern("a\ufffdc").is_in("a\udfffc")
    assert Pattern("a\ud800c").is_in("a\ufffdc")
    assert Pattern("a\0c").is_in("a\0c")


@for_each(
    "kind, fields, sentence",
    [
        (SaveRule, {"tool": "t" * 101}, "tool\n.*at most 100 characters"),
        (SaveRule, {"tool": " "}, "tool\n.*should match pattern"),
        (InjectRule, {"tool": "bash", "query": "\n"}, "query\n.*should match pattern"),
        (SaveRule, {"tool": 5}, "tool\n.*valid string"),
        (saving, {"match_output": 5}, "match_output\n.*It must be a Pattern"),
        (saving, {"match_args": {"command": 5}}, "match_args.command\n.*It must be a Pattern"),
        (saving, {"match_args": ["command"]}, "match_args\n.*valid dictionary"),
        (asking, {"limit": 2.5}, "limit\n.*valid integer"),
    ],
)  # fmt: skip
def test_a_rule_that_the_service_would_not_take_cannot_be_made(
    kind: Callable[..., object], fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        kind(**fields)


def test_a_pattern_of_another_dialect_is_refused_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for text in (r"(?=a)b", r"(?<!a)b", r"(a)\1", "(a", "[z-a]", r"\Z", "a{1001}",
                 "((a{99}){99}){99}", "(\ud800"):  # fmt: skip
        with pytest.raises(ValueError, match=r"^RE2 does not take the pattern .* and says "):
            Pattern(text)

    assert capfd.readouterr() == ("", "")


def test_a_pattern_is_a_value() -> None:
    pattern = Pattern("(?i)a")

    assert pattern == Pattern("(?i)a") != Pattern("a")
    assert repr(pattern) == "Pattern(text='(?i)a')"
    assert pickle.loads(pickle.dumps(pattern)).is_in("A")  # noqa: S301 - our own
    assert len({pattern, Pattern("(?i)a")}) == 1


def test_the_service_takes_the_longest_that_a_rule_makes(path: Path) -> None:
    rule = SaveRule(tool="t" * 100, type="y" * 50, scope="s" * 50)
    asking = InjectRule(tool="t" * 100, query="from_tool_args", limit=1_000)
    hooks = ToolHooks(save_rules=(rule,), inject_rules=(asking,))
    long = call("t" * 100, command="\ud800\0😀\n" * 9_000)
    capture, question = hooks.capture(long, "\0\udfff😀 " * 9_000), hooks.question(long)
    assert capture
    assert question

    with serving(path) as service, MemoryClient(service.url) as client:
        saved = client.save(
            session_id="s", project="p", type=capture.type, title=capture.title,
            content=capture.content, tags=capture.tags, scope=capture.scope,
        )  # fmt: skip
        kept = client.get(saved.id)
        client.search(question.query, project="p", limit=question.limit)

    assert (len(kept.title), len(kept.content), kept.tags[2]) == (198, 1_000, "t" * 100)


MISSING = f"""
import sys

def without(package, work):
    sys.modules[package] = None
    try:
        work()
    except ImportError as error:
        print(error)
    finally:
        del sys.modules[package]

from agentops_memory_client.runtime import ToolHooks
ToolHooks()
print(sorted({{"re2", "yaml"}} & sys.modules.keys()))
without("yaml", lambda: ToolHooks.from_yaml({EXAMPLE!r}))
without("re2", lambda: ToolHooks.from_yaml({EXAMPLE!r}))
print(len(ToolHooks.from_yaml({EXAMPLE!r}).save_rules))
"""


@pytest.mark.slow
def test_what_is_not_installed_is_named_where_it_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    # Where the client itself is installed, the packages stand in a command.
    assert re.sub(": (pip install .*|install the extra `runtime` of .*)\n", ": ...\n",
                  done.stdout).split("\n") == [
        "[]", "Tool hooks in YAML need PyYAML: ...",
        "The patterns of tool hooks need google-re2: ...", "2", "",
    ]  # fmt: skip


def test_hooks_have_rules_of_their_kind() -> None:
    rule = InjectRule(tool="bash", query="x")
    with pytest.raises(ValueError, match=r"save_rules.0\n.*instance of SaveRule"):
        ToolHooks(save_rules=(rule,))  # type: ignore[arg-type]
