"""SQL of the memory of hosts, and of their runs."""
