"""Commitments: their bodies, answers and routes."""
