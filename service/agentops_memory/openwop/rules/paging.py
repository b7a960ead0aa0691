"""Moved."""
# ruff: noqa: PLC0414

from ..refs import MAX_READ as MAX_READ
from ..refs import fitting as fitting
