"""Moved."""
# ruff: noqa: PLC0414

from ..entries import ENTRY as ENTRY
from ..entries import entry_of as entry_of
from ..runs import RUN as RUN
from ..runs import payload_text as payload_text
from ..runs import run_of as run_of
