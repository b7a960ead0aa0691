"""agentops-memory: a deterministic full-text memory service for agents."""

__version__ = "0.1.0"
