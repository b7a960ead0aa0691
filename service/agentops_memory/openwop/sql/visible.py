"""Moved."""
# ruff: noqa: PLC0414

from ..refs import put_by as put_by
from ..refs import superseded as superseded
from ..refs import there as there
from ..refs import undeleted_at as undeleted_at
from ..refs import values as values
