"""The command line, settings and starts."""
