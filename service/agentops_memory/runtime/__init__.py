"""What an agent loop needs beside its model: working memory, memories in the prompt, tool hooks.

Imports nothing but the client.
"""

from .checkpoint import CheckpointError
from .messages import ChatMessage, ToolCall
from .working_memory import WorkingMemory

__all__ = ["ChatMessage", "CheckpointError", "ToolCall", "WorkingMemory"]
