"""OpenIntent RFC-0015."""
