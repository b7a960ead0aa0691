"""Search and context."""
