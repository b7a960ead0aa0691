"""Measurements of the service, most of them ratios within one run. No tests."""

import os
import sys
from pathlib import Path

SERVICE = Path(__file__).parents[1] / "service"
CLIENT = SERVICE / "client"
SOURCES = os.pathsep.join([str(SERVICE), str(CLIENT)])

sys.path[:0] = [str(SERVICE), str(CLIENT)]  # so that it runs from a checkout, installed or not
