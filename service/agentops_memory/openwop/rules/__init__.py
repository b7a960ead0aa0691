"""Memory of hosts, under references of theirs, and their runs: what OpenWOP asks of a memory."""
