"""Moved."""
# ruff: noqa: PLC0414

from ..runs import RunTable as RunTable
