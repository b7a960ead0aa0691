"""Tool hooks as they are written in YAML: where they stand, and every fault with its place."""

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from agentops_memory_client.runtime import (
    HooksRefused,
    InjectRule,
    Pattern,
    SaveRule,
    ToolHooks,
)

from ..client.test_tool_hooks import EXAMPLE
from .test_docs import ROOT, blocks

HOOKS = ToolHooks.from_yaml(EXAMPLE)
GUIDE = ROOT / "docs" / "runtime.md"


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def faults(text: str) -> list[str]:
    with pytest.raises(HooksRefused) as refusal:
        ToolHooks.from_yaml(text)
    assert str(refusal.value) == "\n".join(refusal.value.faults)
    return list(refusal.value.faults)


def faults_or_none(text: str) -> tuple[str, ...]:
    try:
        ToolHooks.from_yaml(text)
    except HooksRefused as refused:
        return refused.faults or ("",)
    return ()


def rules(*fields: str, kind: str = "memorySaveRules") -> str:
    return f"{kind}:\n" + "".join(f"- {{{each}}}\n" for each in fields)


def fault(fields: str, kind: str = "memorySaveRules") -> str:
    """The one fault of one rule, from the field on."""
    (told,) = faults(rules(fields, kind=kind))
    return told.removeprefix(f"{kind}[0].")


def test_hooks_stand_in_a_manifest_or_alone() -> None:
    agent = f"apiVersion: agents/v1\nkind: Agent\nspec:\n  model: m\n{indented(EXAMPLE)}"
    lists = "\n".join(line[2:] for line in EXAMPLE.splitlines()[1:])
    others = "kind: ConfigMap\ndata: {a: b}\n---\n"

    assert HOOKS.save_rules[0].match_output == Pattern("error|panic|fatal")
    for text in (agent, lists, f"\ufeff{agent}", f"--- # nothing\n---\n{others}{agent}---\n"):
        assert ToolHooks.from_yaml(text) == HOOKS
    assert ToolHooks.from_yaml(
        json.dumps({"toolHooks": {"memorySaveRules": [{"tool": "bash"}]}})
    ) == ToolHooks(save_rules=(SaveRule(tool="bash"),))


def test_every_field_is_read() -> None:
    text = """\
memorySaveRules:
- tool: bash
  matchOutput: (?i)error
  matchArgs: {command: ^git, "on": x}
  type: pattern
  scope: team
contextInjectTools:
- {tool: read, query: what failed, limit: 1000}
- {tool: bash, query: from_tool_args}
"""
    assert ToolHooks.from_yaml(text) == ToolHooks(
        save_rules=(
            SaveRule(
                tool="bash", match_output=Pattern("(?i)error"),
                match_args={"command": Pattern("^git"), "on": Pattern("x")}, type="pattern",
                scope="team",
            ),
        ),
        inject_rules=(
            InjectRule(tool="read", query="what failed", limit=1_000),
            InjectRule(tool="bash", query="from_tool_args"),
        ),
    )  # fmt: skip


def test_what_is_null_or_empty_is_not_given_and_no_hooks_are_no_fault() -> None:
    for text in (
        "", "# nothing", "---\n---\n", "null", "{}", "kind: Agent", "spec:", "toolHooks:",
        "spec: {toolHooks: {}}", "toolHooks: {memorySaveRules: , contextInjectTools: []}",
        "toolHooks: {blockedCommands: [rm], allowedPaths: [/], auditTools: [x], tools: 1}",
        "kind: Agent\nspec: {tools: [], toolRefs: [], toolkits: []}", "a: 1\n---\nb: 2",
        "toolHooks: {}\nmemorySaveRules:", "spec: {contextInjectTools: }", "tool_hooks: ~",
    ):  # fmt: skip
        assert ToolHooks.from_yaml(text) == ToolHooks(), text

    rule = 'tool: t, matchOutput: , matchArgs: ~, type: "", scope: ""'
    asked = "tool: t, query: q, limit: null"
    text = rules(rule) + rules(asked, kind="contextInjectTools")

    assert ToolHooks.from_yaml(text) == ToolHooks(
        save_rules=(SaveRule(tool="t"),), inject_rules=(InjectRule(tool="t", query="q"),)
    )


def test_values_may_be_shared_by_anchors_but_merges_are_refused() -> None:
    text = """\
memorySaveRules:
- &first {tool: bash, type: bugfix, matchArgs: &args {command: git}}
- {tool: fish, matchArgs: *args}
- *first
"""
    args = {"command": Pattern("git")}
    first = SaveRule(tool="bash", type="bugfix", match_args=args)

    assert ToolHooks.from_yaml(text).save_rules == (
        first, SaveRule(tool="fish", match_args=args), first
    )  # fmt: skip
    assert faults(f"{text}- {{<<: *first, scope: team}}") == [
        "memorySaveRules[3].tool: It is missing.",
        "memorySaveRules[3].<<: There is no such field.",
    ]


def test_every_fault_is_named_at_once_with_its_place() -> None:
    text = """\
kind: Agent
spec:
  toolHooks:
    memorySaveRule: []
    memorySaveRules:
    - tool: bash
      matchOutput: (?=a)b
    - type: 1
      matchArgs: {command: 2024-01-01, on: x, path: '\\1', query: }
    - bash
    contextInjectTools:
    - {tool: ' ', query: from_tool_arg}
"""
    rule = "memorySaveRules[1]"
    assert faults(text) == [
        f"spec.toolHooks.{told}"
        for told in (
            "memorySaveRule: There is no such field. Did you mean memorySaveRules?",
            ('memorySaveRules[0].matchOutput: RE2 does not take the pattern "(?=a)b" and says'
             ' "invalid perl operator: (?=".'),
            f"{rule}.tool: It is missing.",
            (f'{rule}.matchArgs.path: RE2 does not take the pattern "\\1" and says'
             ' "invalid escape sequence: \\1".'),
            f"{rule}.matchArgs.query: It must be text.",
            "memorySaveRules[2]: It must be a mapping of fields.",
            "contextInjectTools[0].tool: It is blank.",
        )
    ]  # fmt: skip


def test_each_fault_of_a_field_is_told_by_its_name() -> None:
    for value in ("[a]", "{a: b}"):
        for field in ("tool", "matchOutput", "type", "scope"):
            others = "" if field == "tool" else "tool: t, "
            assert fault(f"{others}{field}: {value}") == f"{field}: It must be text."
    for fields, told in (
        ("tool: t, matchArgs: x", "matchArgs: It must be a mapping of fields."),
        ("type: x", "tool: It is missing."), ("tool: ''", "tool: It is missing."),
        ("tool: t, project: x", "project: There is no such field."),
        ("tool: t, match_args: {a: x}", "match_args: There is no such field."),
        ("tool: t, ~: x", "~: There is no such field."),
    ):  # fmt: skip
        assert fault(fields) == told
    for field, longest in (("tool", 100), ("type", 50), ("scope", 50)):
        others = "" if field == "tool" else "tool: t, "
        told = fault(f"{others}{field}: {'x' * (longest + 1)}")
        assert told == f"{field}: String should have at most {longest} characters."
        assert ToolHooks.from_yaml(rules(f"{others}{field}: {'x' * longest}")).save_rules
        assert fault(f"{others}{field}: ' '") == f"{field}: It is blank."


def test_scalars_are_text_whatever_yaml_makes_of_them() -> None:
    for value in ("no", "1", "1.5", "1:30", "2024-01-01", "!!str 1", "0b_", "'~'", '"null"'):
        (rule,) = ToolHooks.from_yaml(rules(f"tool: {value}")).save_rules
        assert rule.tool == value.removeprefix("!!str ").strip("'\"")


def test_a_limit_is_a_whole_number_and_a_query_is_given() -> None:
    def told(fields: str) -> str:
        return fault(fields, kind="contextInjectTools")

    for limit in ("0", "-1", "1001", "1.5", "yes", "1e2", "[1]"):
        assert told(f"tool: t, query: q, limit: {limit}").startswith("limit: Input should be "), (
            limit
        )
    for largest in (1, 1_000):
        text = rules(f"tool: t, query: q, limit: {largest}", kind="contextInjectTools")
        assert ToolHooks.from_yaml(text).inject_rules[0].limit == largest
    assert told("tool: t") == "query: It is missing."
    assert told("tool: t, query: q, scope: x") == "scope: There is no such field."


def test_hooks_in_a_place_that_is_not_theirs_are_named() -> None:
    for text, told in (
        ("toolhooks: {}", "toolhooks: There is no such field. Did you mean toolHooks?"),
        ("spec: {toolHook: {}}", "spec.toolHook: There is no such field. Did you mean toolHooks?"),
        ("memorySaveRule: []",
         "memorySaveRule: There is no such field. Did you mean memorySaveRules?"),
        ("toolHooks: {contextInjectTool: []}",
         "toolHooks.contextInjectTool: There is no such field. Did you mean contextInjectTools?"),
        ("spec: {memorySaveRules: []}", "spec.memorySaveRules: It belongs below spec.toolHooks."),
        ("toolHooks: []", "toolHooks: It must be a mapping of fields."),
        ("toolHooks: {memorySaveRules: {}}",
         "toolHooks.memorySaveRules: It must be a list."),
        ("toolHooks: {memorySaveRules: [~]}",
         "toolHooks.memorySaveRules[0]: It must be a mapping of fields."),
        ("spec: x", "spec: It must be a mapping of fields."),
        ("\n- a", "the document: It must be a mapping of fields."),
        ("hello", "the document: It must be a mapping of fields."),
        ("toolHooks: {}\n---\nspec: {toolHooks: {}}",
         "toolHooks: Hooks are of one agent; these stand in 2 places."),
        ("toolHooks: {}\nmemorySaveRules: []",
         "toolHooks: Hooks are of one agent; these stand in 2 places."),
        (rules("tool: t, tool: u"), "line 2, column 3: This is not YAML: a field stands twice."),
    ):  # fmt: skip
        assert faults(text) == [told]


def test_what_is_not_yaml_is_told_with_its_line_and_column() -> None:
    for text, told in (
        ("a: b: c", "line 1, column 5: This is not YAML: mapping values are not allowed here."),
        ("a:\n  {b", "line 2, column 5: This is not YAML: expected ',' or '}', but got"),
        ("a:\n\t- b", "line 2, column 1: This is not YAML: found character '\\t' that cannot"),
        ("a: *b", "line 1, column 4: This is not YAML: found undefined alias 'b'."),
        ("a:\n b\0", "the text: This is not YAML: unacceptable character #x0000"),
        ("a: \ud800", "the text: This is not YAML: unacceptable character #xd800"),
        ('a: "\\U00110000"', "the text: This is not YAML: chr() arg not in range"),
        ('a: "\\UFFFFFFFF"', "the text: This is not YAML: Python int too large"),
        (f"%YAML 1.{'9' * 5_000}\n---", "the text: This is not YAML: Exceeds the limit"),
        ("a: " + "[" * 5_000, "the text: This is not YAML: maximum recursion depth exceeded"),
        ("toolHooks: &a {b: *a}", "line 1, column 12: This is not YAML: found unconstructable"),
    ):  # fmt: skip
        (first,) = faults(text)
        assert first.startswith(told), first


def test_what_is_the_platforms_may_mean_anything() -> None:
    text = (
        """
        kind: Agent
        metadata: {released: 2024-99-99, cost: {{ .Values.cost }}, size: """
        + "9" * 5000
        + """}
        sign: =
        2024-99-99: a day
        spec:
          model: &model {? [a, b] : c, {{ .Values.model }}: 1}
          other: *model
          toolHooks: {contextInjectTools: [{tool: bash, query: tests}]}
    """
    )
    assert [it.tool for it in ToolHooks.from_yaml(text).inject_rules] == ["bash"]

    assert faults_or_none("kind: 2024-99-99") == faults_or_none("name: =\nkind: Agent") == ()


def test_a_few_lines_that_mean_very_much_are_read_like_a_few_lines() -> None:
    laughs = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 60)
    )
    assert ToolHooks.from_yaml(laughs) == ToolHooks()
    assert faults(f"{laughs}memorySaveRules: *a59") == [
        f"memorySaveRules[{place}]: It must be a mapping of fields." for place in range(10)
    ]


def test_a_file_is_read_and_named_in_each_fault(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(f"\ufeff{EXAMPLE}", "utf-8")
    assert ToolHooks.from_file(path) == ToolHooks.from_file(str(path)) == HOOKS

    path.write_text("toolHook: x\nmemorySaveRule: y", "utf-8")
    with pytest.raises(HooksRefused) as refusal:
        ToolHooks.from_file(path)
    assert refusal.value.faults == (
        f"{path}: toolHook: There is no such field. Did you mean toolHooks?",
        f"{path}: memorySaveRule: There is no such field. Did you mean memorySaveRules?",
    )
    assert isinstance(refusal.value, ValueError)
    assert pickle.loads(pickle.dumps(refusal.value)).faults == refusal.value.faults  # noqa: S301

    path.write_bytes(b"a: \xff")
    with pytest.raises(HooksRefused, match=r"agent.yaml: Byte 4 is not UTF-8\.$"):
        ToolHooks.from_file(path)
    with pytest.raises(FileNotFoundError):
        ToolHooks.from_file(tmp_path / "other.yaml")


WORDS = st.sampled_from(
    """spec toolHooks memorySaveRules contextInjectTools tool matchOutput matchArgs type scope query
    limit kind Agent from_tool_args bash (?i)a (?=a) yes 1 0b_ 2024-01-01 ~ = << & * &a *a ! !!str
    !!int !!python/name:os.system | > - ? : , [ ] { } " ' # % %YAML --- ... \\ \\U00110000 \t
    """.split(" ")
)
SPACES = st.sampled_from([" ", "\n", "\n  ", "\n    ", ": ", "- ", "\n- ", ""])
SCRAPS = st.lists(st.tuples(WORDS, SPACES), max_size=30).map(
    lambda pairs: "".join(word.strip("\n") + space for word, space in pairs)
)
SHAPES = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=20,
)
RULES = st.lists(st.dictionaries(WORDS, SHAPES, max_size=4), max_size=3)
MANIFESTS = st.fixed_dictionaries({"memorySaveRules": RULES, "contextInjectTools": RULES})


@given(st.one_of(st.text(max_size=60), SCRAPS, SHAPES.map(json.dumps), MANIFESTS.map(json.dumps)))
@example("? [a]\n: b\n")
@example("toolHooks: {? [a] : b, ? {c: d} : e}")
@example("&a [*a]")
@example("kind: [Agent]\ntoolHooks: &a {memorySaveRules: [*a]}")
@example("<<: {<<: 5}")
def test_any_text_is_hooks_or_is_refused_in_whole_sentences(text: str) -> None:
    for told in faults_or_none(text):
        assert ": " in told
        assert told.endswith((".", "?"))
        assert "\n" not in told


def test_the_guide_shows_hooks_that_are_read() -> None:
    shown = blocks(GUIDE, "yaml")

    assert shown
    assert all(ToolHooks.from_yaml(block) != ToolHooks() for block in shown)
