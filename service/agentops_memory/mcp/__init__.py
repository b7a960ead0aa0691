"""The MCP server: what an agent can do with the memories of one project.

Needs the extra `mcp`.
"""
