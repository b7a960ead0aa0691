"""Moved."""

from ..entries import ALL as ALL
from ..entries import RefTable as RefTable
