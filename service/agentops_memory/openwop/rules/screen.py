"""Moved."""
# ruff: noqa: PLC0414

from ..refs import LONGEST_TAG as LONGEST_TAG
from ..refs import MAX_CONTENT as MAX_CONTENT
from ..refs import Screen as Screen
from ..refs import marked as marked
from ..refs import screened as screened
