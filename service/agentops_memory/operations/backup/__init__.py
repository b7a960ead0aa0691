"""Archives of all that a service keeps: made, verified, kept for a time, restored."""
