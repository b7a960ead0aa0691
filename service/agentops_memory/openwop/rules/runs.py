"""Moved."""
# ruff: noqa: PLC0414

from ..runs import Runs as Runs
