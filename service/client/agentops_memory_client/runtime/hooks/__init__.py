"""Rules for the calls of tools, as the platform's YAML has them."""

from .patterns import Pattern
from .rules import Capture, InjectRule, Question, SaveRule
from .tool_hooks import HooksRefused, ToolHooks

__all__ = ["Capture", "HooksRefused", "InjectRule", "Pattern", "Question", "SaveRule", "ToolHooks"]
