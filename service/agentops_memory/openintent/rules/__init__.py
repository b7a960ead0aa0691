"""The rules of agents' memory: OpenIntent's RFC-0015."""
