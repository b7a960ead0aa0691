"""Moved."""
# ruff: noqa: PLC0414

from ...consolidation import merged_entries as merged_entries
from ...consolidation import screened_merge as screened_merge
from ...consolidation import with_secrets as with_secrets
