"""Moved."""
# ruff: noqa: PLC0414

from ..artifacts import ArtifactKind as ArtifactKind
