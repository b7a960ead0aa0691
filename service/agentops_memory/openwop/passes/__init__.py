"""Passes over refs and forgetting: their bodies, answers and routes."""
