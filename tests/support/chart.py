"""The Helm chart: the values that it is rendered with, and their schema."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "agentops-memory"
GOLDEN = ROOT / "tests" / "golden" / "chart"
RELEASE, NAMESPACE = "memory", "agents"
CHECKS = "it needs the extra `checks`: pip install --editable '.[checks]'"

Values = Mapping[str, Any]

# What an operator turns on or off; every combination of these that a service can have is rendered.
SWITCHES: Mapping[str, Values] = {
    "keys": {"keys": {"existingSecret": "agentops-memory-keys"}},
    "takeover": {"persistence": {"existingClaim": "data-of-the-original"}},
    "tracing": {"otlp": {"endpoint": "http://collector.observability:4318/agents:1"}},
    "backup": {"backup": {"enabled": True}},
    "litestream": {"litestream": {"enabled": True, "url": "s3://backups/memory"}},
    "monitor": {
        "serviceMonitor": {"enabled": True, "bearerTokenSecret": {"name": "prometheus-key"}}
    },
    "ingress": {"auth": "keys", "ingress": {"enabled": True, "hosts": ["memory.example"]}},
    "no-policy": {"networkPolicy": {"enabled": False}},
    "database": {"database": {"existingSecret": "memory-database"}},
    "replicas": {"replicaCount": 3},
    "autoscaling": {"autoscaling": {"enabled": True}},
}
OF_DATABASES = {"database", "replicas", "autoscaling"}

# What no switch turns on.
REST: Values = {
    "image": {"repository": "registry.example/agentops-memory", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "persistence": {
        "size": 5368709120, "storageClass": "true", "accessModes": ["ReadWriteOncePod"],
        "annotations": {"backup": "daily", "helm.sh/resource-policy": "delete"},
    },
    "backup": {"every": "1h30m", "keep": 48, "size": 10737418240, "storageClass": "0"},
    "drainSeconds": 10,
    "terminationGracePeriodSeconds": 60,
    "startupSeconds": 7201,
    "otlp": {"protocol": "http/protobuf"},
    "settings": {"MEMORY_TENANT_QUOTA": 1048576, "MEMORY_AUTO_SAVE": False},
    "service": {"type": "LoadBalancer", "annotations": {"note": "agents"}},
    "ingress": {
        "className": "nginx",
        "annotations": {"note": "outside"},
        "tls": [{"secretName": "memory-tls", "hosts": ["memory.example"]}],
    },
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"agents": "yes"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 8443}]}],
    },
    "serviceMonitor": {
        "interval": "1m",
        "scrapeTimeout": "20s",
        "labels": {"release": "prometheus", "app.kubernetes.io/name": "other"},
    },
    "serviceAccount": {"name": "65534", "annotations": {"role": "backup"}},
    "podDisruptionBudget": {"enabled": True},
    "extraEnv": [{"name": "OTEL_SERVICE_NAME", "value": "agents-memory"}],
    "extraVolumes": [{"name": "rules", "configMap": {"name": "redaction"}}],
    "extraVolumeMounts": [{"name": "rules", "mountPath": "/etc/redaction", "readOnly": True}],
    "commonLabels": {"team": "agents", "app.kubernetes.io/name": "other"},
    "podLabels": {"tier": "memory", "app.kubernetes.io/instance": "other"},
    "podAnnotations": {"note": "one pod"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "1000",
    "litestream": {
        "tenants": ["acme", "0"], "replica": {"region": "eu-central-1"}, "existingSecret": "0",
        "port": 9000,
    },
}  # fmt: skip


def merged(*parts: Values) -> dict[str, Any]:
    """Values over values, as Helm lays one file over another."""
    whole: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            below = whole.get(name)
            if isinstance(value, Mapping) and isinstance(below, Mapping):
                whole[name] = merged(below, value)
            else:
                whole[name] = value
    return whole


# All but what takes something away.
EVERYTHING = SWITCHES.keys() - OF_DATABASES - {"takeover", "no-policy"}

ON_FILES: Mapping[str, Values] = {
    "default": {},
    "keys": SWITCHES["keys"],
    "takeover": SWITCHES["takeover"],
    "litestream": SWITCHES["litestream"],
    "stopped": {
        "replicaCount": 0, "persistence": {"enabled": False}, "drainSeconds": 0,
        "serviceAccount": {"create": False},
    },
    "everything": merged(*(SWITCHES[name] for name in EVERYTHING), REST),
}  # fmt: skip
ON_DATABASE: Mapping[str, Values] = {
    "database": merged(
        SWITCHES["database"], SWITCHES["replicas"], {"settings": {"MEMORY_RATE_LIMIT": "100/s"}}
    ),
    "autoscaled": merged(
        {"database": {
            "existingSecret": "memory-database-app", "key": "uri", "pool": 16, "retention": "7d",
            "port": 6432, "to": [{"podSelector": {"matchLabels": {"cnpg.io/cluster": "memory"}}}],
        }},
        SWITCHES["autoscaling"],
        SWITCHES["ingress"],
        {"settings": {
            "MEMORY_RATE_LIMIT": "100/s",
            "MEMORY_SEAL_FILE": "/etc/agentops-memory/files/seal",
            "MEMORY_REDACTION_FILE": "/etc/agentops-memory/files/redaction",
        }},
        {
            "extraVolumes": [{"name": "files", "secret": {"secretName": "agentops-memory-files"}}],
            "extraVolumeMounts": [
                {"name": "files", "mountPath": "/etc/agentops-memory/files", "readOnly": True}
            ],
        },
    ),
}  # fmt: skip

# Rendered by both Helms, these must be the files in GOLDEN.
CASES: Mapping[str, Values] = {**ON_FILES, **ON_DATABASE}


def schema() -> dict[str, Any]:
    """What values.schema.json allows."""
    document: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return document


def validate(document: Mapping[str, Any], version: str) -> None:
    """By the schemas of a version of Kubernetes, of 108 MB: without them the test is skipped."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=CHECKS)
    assert kubernetes_validate.validate(document, version, strict=True) == version
