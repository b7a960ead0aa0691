"""Moved."""
# ruff: noqa: PLC0414

from ..runs import snapshot_of as snapshot_of
