"""The manifests under deploy/, read as they stand."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "base"

NOBODY = 65534

# The profile `restricted` of Kubernetes, with a read-only root and the user of the image.
RESTRICTED_POD = {
    "runAsNonRoot": True, "runAsUser": NOBODY, "runAsGroup": NOBODY, "fsGroup": NOBODY,
    "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def manifest(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document


def pod(path: Path = BASE / "deployment.yaml") -> dict[str, Any]:
    """The pod of a Deployment, or of a patch to one."""
    spec: dict[str, Any] = manifest(path)["spec"]["template"]["spec"]
    return spec


def container(path: Path = BASE / "deployment.yaml") -> dict[str, Any]:
    """Its only container."""
    (only,) = pod(path)["containers"]
    assert isinstance(only, dict)
    return only
