"""The service as Python sees it: its operations, answers and refusals.

A leaf: the client, the MCP server and the command line share it, and it imports nothing of them.
"""
