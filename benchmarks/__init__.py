"""Measurements of the service, most of them ratios within one run. No tests."""

import sys
from pathlib import Path

SERVICE = Path(__file__).parents[1] / "service"

sys.path.insert(0, str(SERVICE))  # so that it runs from a checkout, installed or not
