"""OpenIntent RFC-0015: agents' memory, as the Python package `openintent` asks for it."""
