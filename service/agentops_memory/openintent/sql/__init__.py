"""SQL of agents' memory."""
