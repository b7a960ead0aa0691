"""Moved."""

from ..adapter import Screened as Screened
from ..adapter import delete_entry as delete_entry
from ..adapter import put_entry as put_entry
from ..adapter import removed as removed
from ..entries import added as added
from .screened_writes import ScreenOutdated as ScreenOutdated
