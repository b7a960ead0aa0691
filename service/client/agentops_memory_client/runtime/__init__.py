"""Parts of an agent loop: working memory, memories for the prompt, and tool hooks.

They reach the service only through the client.
"""

from .hooks import HooksRefused, InjectRule, Pattern, SaveRule, ToolHooks
from .session import Lost, MemorySession, Report
from .working_memory import ChatMessage, CheckpointError, ToolCall, Unsent, WorkingMemory

__all__ = [
    "ChatMessage", "CheckpointError", "HooksRefused", "InjectRule", "Lost", "MemorySession",
    "Pattern", "Report", "SaveRule", "ToolCall", "ToolHooks", "Unsent", "WorkingMemory",
]  # fmt: skip
