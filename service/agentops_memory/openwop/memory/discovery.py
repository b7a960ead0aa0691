"""Moved."""
# ruff: noqa: PLC0414

from ..api import BASE as BASE
