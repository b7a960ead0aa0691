"""The Python client and its runtime kit."""
