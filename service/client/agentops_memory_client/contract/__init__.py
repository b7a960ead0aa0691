"""The service as Python sees it: its answers, its refusals, and what can be asked of it.

A leaf: the client, the MCP server and the command line share it, and it imports nothing of them.
"""
