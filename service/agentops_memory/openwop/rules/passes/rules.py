"""Moved."""
# ruff: noqa: PLC0414

from ...archives import MOST_TOKENS as MOST_TOKENS
from ...archives import compacted as compacted
from ...archives import distilled as distilled
from ...consolidation import MOST_MERGED as MOST_MERGED
