"""Moved."""
# ruff: noqa: PLC0414

from ..host_runs import Runs as Runs
