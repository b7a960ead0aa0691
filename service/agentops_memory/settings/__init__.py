"""Settings: one frozen Settings, read once from a table of variables."""
