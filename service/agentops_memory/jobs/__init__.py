"""The background jobs of a service, each on its own schedule."""
