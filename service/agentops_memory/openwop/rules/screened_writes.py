"""Moved."""
# ruff: noqa: PLC0414

from ..refs import IsCurrent as IsCurrent
from ..refs import ScreenOutdated as ScreenOutdated
from ..refs import currency as currency
from ..refs import screen_of as screen_of
from ..refs import written as written
