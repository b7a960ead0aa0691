"""Moved."""
# ruff: noqa: PLC0414

from ..adapter import RefEntries as RefEntries
