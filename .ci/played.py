"""The rendered chart for podman.

`helm template ... | .ci/played.py FOLDER [KEYS]`

Podman knows neither the kinds that a cluster has around a pod nor how a kubelet mounts a
secret, asks probes by a program that the image does not have, and publishes each named port.
"""

import os
import shlex
import shutil
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

UNKNOWN = {"ports", "startupProbe", "livenessProbe", "readinessProbe"}  # of a container


def main(folder: Path, keys: Path | None = None) -> None:
    """The claim, the pods to play, and what else the chart says of them, in files."""
    by_kind = {each["kind"]: each for each in yaml.safe_load_all(sys.stdin) if each}
    deployment, test = by_kind["Deployment"], by_kind["Pod"]
    spec = deployment["spec"]["template"]["spec"]
    (folder / "facts").write_text(_facts(spec), "utf-8")
    _write(folder / "deployment.yaml", deployment)
    _write(folder / "claim.yaml", by_kind["PersistentVolumeClaim"])
    deployment["spec"]["template"]["spec"] = _playable(_mounted(spec, folder, keys))
    _write(folder / "service.yaml", deployment)
    _write(folder / "test.yaml", test | {"spec": _playable(test["spec"])})


def _facts(spec: Document) -> str:
    """What a shell is to know."""
    (container,) = spec["containers"]
    return f"""\
grace={spec["terminationGracePeriodSeconds"]}
hook=({shlex.join(container["lifecycle"]["preStop"]["exec"]["command"])})
startup={shlex.quote(container["startupProbe"]["httpGet"]["path"])}
ready={shlex.quote(container["readinessProbe"]["httpGet"]["path"])}
"""


def _playable(spec: Document) -> Document:
    """A pod in the network of whoever plays it."""
    containers = [
        {key: value for key, value in container.items() if key not in UNKNOWN}
        for container in spec["containers"]
    ]
    return spec | {"hostNetwork": True, "containers": containers}


def _mounted(spec: Document, folder: Path, keys: Path | None) -> Document:
    """The same pod, its secret a folder."""
    mounted = deepcopy(spec)
    for volume in mounted["volumes"]:
        if secret := volume.pop("secret", None):
            if keys is None:
                raise SystemExit("The pod wants keys.")
            path = _secret(folder, keys, secret["defaultMode"], spec["securityContext"]["fsGroup"])
            volume["hostPath"] = {"path": str(path), "type": "Directory"}
    return mounted


def _secret(folder: Path, keys: Path, mode: int, group: int) -> Path:
    """As the kubelet mounts it: links to files of root's, which the pod's group may read."""
    secret = folder / "secret"
    (secret / "..1").mkdir(parents=True)
    file = secret / "..1" / keys.name
    shutil.copyfile(keys, file)
    file.chmod(mode)
    os.chown(file, 0, group)
    (secret / "..data").symlink_to("..1")
    (secret / keys.name).symlink_to(f"..data/{keys.name}")
    return secret


def _write(path: Path, document: Document) -> None:
    path.write_text(yaml.safe_dump(document), "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
