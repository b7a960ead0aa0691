"""Tool hooks: memories saved after tool calls, and memories searched for before them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from ..contract.errors import CLIENT, install_command
from .conversation import ToolCall, require
from .rules import Capture, InjectRule, Pattern, Question, SaveRule

Rule = TypeVar("Rule", SaveRule, InjectRule)


__all__ = ["Capture", "HooksRefused", "InjectRule", "Pattern", "Question", "SaveRule", "ToolHooks"]


class HooksRefused(ValueError):
    """The hooks cannot be read. `faults` names all that is wrong, each with its place."""

    @property
    def faults(self) -> tuple[str, ...]:
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHooks:
    """Rules for tools. Of each list the first rule with the tool's name decides, and no other."""

    save_rules: tuple[SaveRule, ...] = ()
    inject_rules: tuple[InjectRule, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("save_rules", SaveRule), ("inject_rules", InjectRule)):
            rules = tuple(getattr(self, name))
            object.__setattr__(self, name, rules)
            for index, rule in enumerate(rules):
                require(f"{name}[{index}]", rule, kind)

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """The hooks of an agent's manifest, or of its `toolHooks` alone; none if it has none.

        HooksRefused names every fault. ImportError, with what to install, where
        PyYAML or google-re2 is not.
        """
        require("The text of hooks", text, str)
        try:
            from .manifest import rules_in  # noqa: PLC0415 - nobody else needs PyYAML
        except ModuleNotFoundError as error:
            raise ImportError(
                f"Tool hooks in YAML need PyYAML: {install_command(CLIENT, 'runtime')}"
            ) from error
        save, inject, faults = rules_in(text)
        if faults:
            raise HooksRefused(*faults)
        return cls(save_rules=tuple(save), inject_rules=tuple(inject))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The hooks in a file of YAML in UTF-8. HooksRefused names the file, too."""
        try:
            return cls.from_yaml(Path(path).read_bytes().decode())
        except UnicodeDecodeError as error:
            raise HooksRefused(f"{path}: Byte {error.start + 1} is not UTF-8.") from error
        except HooksRefused as refused:
            raise HooksRefused(*(f"{path}: {fault}" for fault in refused.faults)) from None

    def capture(self, call: ToolCall, output: str) -> Capture | None:
        """The memory to save of a call that has said this, if its rule has it saved.

        TypeError for an output that is no text, with a rule or without.
        """
        require("The output of a tool", output, str)
        rule = _first(self.save_rules, call)
        return rule.capture(call, output) if rule else None

    def question(self, call: ToolCall) -> Question | None:
        """What to search for before the call, if its rule asks for something."""
        rule = _first(self.inject_rules, call)
        return rule.question(call) if rule else None


def _first(rules: Iterable[Rule], call: ToolCall) -> Rule | None:
    return next((rule for rule in rules if rule.tool == call.name), None)
