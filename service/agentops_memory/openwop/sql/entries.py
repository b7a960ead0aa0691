"""Moved."""
# ruff: noqa: PLC0414

from ..entries import ALL as ALL
from ..entries import RefTable as RefTable
