"""AgentOps REST: the protocol of the agent runtime and of the console, on the root paths."""

from .handlers import Handlers
from .operations import AgentOps

__all__ = ["AgentOps", "Handlers"]
