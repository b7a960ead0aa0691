"""The full-text index: where each stem is, as rows."""
