"""Moved."""
# ruff: noqa: PLC0414

from ...consolidation import STEP as STEP
from ...consolidation import Begun as Begun
from ...consolidation import begin_pass as begin_pass
from ...consolidation import consolidation_inputs as consolidation_inputs
from ...consolidation import finish_pass as finish_pass
from ...consolidation import finished_again as finished_again
from ...consolidation import give_up as give_up
from ...consolidation import planned as planned
from ...consolidation import some_entries as some_entries
from ...consolidation import take_step as take_step
