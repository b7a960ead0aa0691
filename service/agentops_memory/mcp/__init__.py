"""The MCP server: what an agent can do with the memories of a project."""
