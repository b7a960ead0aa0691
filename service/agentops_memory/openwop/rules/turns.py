"""Moved."""
# ruff: noqa: PLC0414

from ..refs import Turns as Turns
