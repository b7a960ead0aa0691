"""The program: `agentops-memory`, which serves when no command is named."""

from .program import main

__all__ = ["main"]
