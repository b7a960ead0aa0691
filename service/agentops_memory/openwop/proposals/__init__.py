"""Proposals: their bodies, answers and routes."""
