"""Moved."""
# ruff: noqa: PLC0414

from ...archives import REPLACEABLE as REPLACEABLE
from ...archives import archive_again as archive_again
from ...archives import compaction_inputs as compaction_inputs
from ...archives import distillation_inputs as distillation_inputs
from ...archives import ids_of_archive as ids_of_archive
from ...archives import put_archive as put_archive
