"""AgentOps REST: the protocol of the agent runtime and of the console, on the root paths."""
