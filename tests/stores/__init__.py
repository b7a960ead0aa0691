"""Memory stores, in both dialects."""
