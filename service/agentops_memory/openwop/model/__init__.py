"""The nouns of the memory of hosts (OpenWOP): refs and their entries, runs and their events."""
