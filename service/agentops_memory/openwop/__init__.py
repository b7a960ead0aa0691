"""OpenWOP agent memory: the adapter of hosts, their runs and events, below /v1."""
