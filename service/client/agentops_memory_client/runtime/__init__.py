"""What an agent loop needs beside its model: working memory, memories in the prompt, tool hooks.

It asks the service through the client alone.
"""

from .hooks import HooksRefused, InjectRule, Pattern, SaveRule, ToolHooks
from .session import Lost, MemorySession, Report
from .working_memory import ChatMessage, CheckpointError, ToolCall, Unsent, WorkingMemory

__all__ = [
    "ChatMessage", "CheckpointError", "HooksRefused", "InjectRule", "Lost", "MemorySession",
    "Pattern", "Report", "SaveRule", "ToolCall", "ToolHooks", "Unsent", "WorkingMemory",
]  # fmt: skip
