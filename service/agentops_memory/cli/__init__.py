"""The program: `agentops-memory`, which serves when it is told nothing."""

from .program import main

__all__ = ["main"]
