"""Moved."""
# ruff: noqa: PLC0414

from ..api import limit as limit
