"""AgentOps REST: imports, exports, lists."""
