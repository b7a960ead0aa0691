"""Requests that nobody thought of, to every route of a real service, for as long as wanted."""
