"""Moved."""
# ruff: noqa: PLC0414

from ...artifacts import ArtifactInvalid as ArtifactInvalid
from ...proposals import ACTIVATION as ACTIVATION
