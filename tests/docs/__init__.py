"""Documentation, sources and requirements."""
