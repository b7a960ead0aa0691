"""The service as Python sees it: its operations, answers and refusals.

A leaf: the client, the MCP server and the command line share it, and it imports nothing of them.
"""

__version__ = "0.1.0"  # of the distribution: read by its build, and sent as the user agent
