"""Moved."""

from ..adapter import RefEntries as RefEntries
