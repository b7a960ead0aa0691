"""Moved."""
# ruff: noqa: PLC0414

from ...archives import ids_of_undone as ids_of_undone
from ...archives import is_undo_due as is_undo_due
from ...archives import undo_pass as undo_pass
from ...archives import undone_again as undone_again
