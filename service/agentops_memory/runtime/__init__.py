"""What an agent loop needs beside its model: working memory, memories in the prompt, tool hooks.

Imports nothing but the client.
"""

try:
    from .hooks import HooksRefused, InjectRule, Pattern, SaveRule, ToolHooks
except ImportError as error:
    if getattr(error.__cause__, "name", None) != "httpx":
        raise
    raise ImportError(
        "The runtime kit needs httpx: pip install 'agentops-memory[runtime]'"
    ) from error
from .checkpoint import CheckpointError
from .messages import ChatMessage, ToolCall
from .report import Lost, Report
from .session import MemorySession
from .unsent import Unsent
from .working_memory import WorkingMemory

__all__ = [
    "ChatMessage",
    "CheckpointError",
    "HooksRefused",
    "InjectRule",
    "Lost",
    "MemorySession",
    "Pattern",
    "Report",
    "SaveRule",
    "ToolCall",
    "ToolHooks",
    "Unsent",
    "WorkingMemory",
]
