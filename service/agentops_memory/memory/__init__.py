"""Memories and sessions: the one write path, idempotency, and redaction on the way in."""
