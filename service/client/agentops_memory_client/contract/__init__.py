"""The operations, results and errors of the service, in Python.

The client, the MCP server and the command line share this package, which imports none of them.
"""

__version__ = "0.1.0"  # read by the build of the distribution, and sent as user agent
