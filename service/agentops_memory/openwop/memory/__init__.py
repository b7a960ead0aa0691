"""The adapter of hosts, their runs and events, and what the other families share."""
