"""The version of the distribution: read by its build, and sent as the user agent."""

__version__ = "0.1.0"
