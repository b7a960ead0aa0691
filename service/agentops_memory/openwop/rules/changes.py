"""Moved."""
# ruff: noqa: PLC0414

from ..adapter import removed as removed
from ..entries import added as added
from ..refs import ScreenOutdated as ScreenOutdated
