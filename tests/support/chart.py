"""The Helm chart: its values, what is rendered with which of them, and what it refuses."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

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
OF_FILES = {"keys", "takeover", "backup", "litestream"}  # of which a database has none
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


# Values that are refused, and what Helm 3 or 4 says of them.
REFUSED: tuple[tuple[Values, str], ...] = (
    ({"replicaCount": 2}, "replicaCount"),
    ({"autoscaling": {"enabled": True}}, "autoscaling.enabled"),
    ({**SWITCHES["database"], "autoscaling": {"minReplicas": 1}}, "minReplicas"),
    (
        {**SWITCHES["database"], "autoscaling": {"minReplicas": 5}},
        "less than autoscaling.minReplicas",
    ),
    ({"database": {"url": "postgresql://memory@db/memory"}}, "'?url"),
    ({"database": {"pool": 0}}, "database.pool"),
    ({"database": {"retention": "a week"}}, "database.retention"),
    ({"settings": {"MEMORY_DATABASE_URL": "postgresql://memory@db/memory"}}, "MEMORY_DATABASE_URL"),
    (
        {"extraEnv": [{"name": "MEMORY_DATABASE_URL", "value": "postgresql://db/memory"}]},
        "MEMORY_DATABASE_URL",
    ),
    ({**SWITCHES["database"], **SWITCHES["keys"]}, "the keys are in the database"),
    ({**SWITCHES["database"], **SWITCHES["backup"]}, "by its own means"),
    ({**SWITCHES["database"], **SWITCHES["litestream"]}, "by its own means"),
    ({**SWITCHES["database"], **SWITCHES["takeover"]}, "not used with database.existingSecret"),
    ({"replicaCount": -1}, "replicaCount"),
    ({"replicas": 1}, "[Aa]dditional propert(y|ies) '?replicas"),
    ({"image": {"tga": "1"}}, "[Aa]dditional propert(y|ies) '?tga"),
    ({"image": {"digest": "sha256:0"}}, "image.digest"),
    ({"image": {"repository": "registry.example/m:1"}}, "image.repository"),
    ({"persistence": {"enabled": None}}, "enabled"),
    ({"networkPolicy": {"from": None}}, "from"),
    ({"podLabels": {"note": "two words"}}, "podLabels.note"),
    ({"resources": {"claims": [{"name": "gpu"}]}}, "claims"),
    ({"drainSeconds": "5s"}, "drainSeconds"),
    (
        {"drainSeconds": 10, "terminationGracePeriodSeconds": 39},
        "39 is too short; with drainSeconds 10 the service needs 40",
    ),
    ({"settings": {"MEMORY_DRAIN": "5s"}}, "MEMORY_DRAIN"),
    ({"settings": {"MEMORY_SESSION_IDLE": "1 day"}}, "MEMORY_SESSION_IDLE"),
    ({"extraEnv": [{"name": "MEMORY_AUTH"}]}, "MEMORY_AUTH has a value"),
    ({"extraEnv": [{"name": "MEMORY_NEW"}]}, "belongs into settings"),
    (
        {"extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "c:1"}]},
        "OTEL_EXPORTER_OTLP_ENDPOINT has a value",
    ),
    (
        {"extraEnv": [{"name": "OTEL_EXPORTER_OTLP_PROTOCOL", "value": "grpc"}]},
        "OTEL_EXPORTER_OTLP_PROTOCOL has a value",
    ),
    ({"otlp": {"endpoint": "collector:65536"}}, "otlp.endpoint"),
    ({"otlp": {"endpoint": "collector"}}, "otlp.endpoint"),
    ({"networkPolicy": {"from": [{}]}}, "networkPolicy.from.0"),
    ({"networkPolicy": {"from": []}}, "networkPolicy.from"),
    ({"persistence": {"existingClaim": "two words"}}, "existingClaim"),
    ({"litestream": {"url": "s3://backups?x"}}, "litestream.url"),
    ({"litestream": {"tenants": ["../x"]}}, "litestream.tenants"),
    ({"litestream": {"tenants": ["default"]}}, "litestream.tenants"),
    ({"image": {"tag": 1.1}}, "image.tag"),
    ({"drainSeconds": 601}, "drainSeconds"),
    ({"startupSeconds": 59}, "startupSeconds"),
    ({"settings": {"MEMORY_CONTEXT_LIMIT": 51}}, "MEMORY_CONTEXT_LIMIT"),
    ({"settings": {"MEMORY_LOG_LEVEL": "critical"}}, "MEMORY_LOG_LEVEL"),
    ({"persistence": {"accessModes": ["ReadWriteMany"]}}, "accessModes"),
    (
        {"persistence": {"enabled": False, "existingClaim": "data"}},
        "not used while persistence.enabled is false",
    ),
    ({"backup": {"enabled": True, "every": "0"}}, "backup.every"),
    ({"backup": {"enabled": True, "every": "30s"}}, "backup.every"),
    ({"backup": {"enabled": True, "keep": 0}}, "backup.keep"),
    ({"settings": {"MEMORY_BACKUP_DIR": "/b"}}, "MEMORY_BACKUP_DIR"),
    ({"backup": {"existingClaim": "archives"}}, "not used while backup.enabled is false"),
    ({"backup": {"enabled": True, "existingClaim": "agentops-memory"}}, "lost with it"),
    (
        {"backup": {"enabled": True}, "persistence": {"existingClaim": "agentops-memory-backup"}},
        "lost with it",
    ),
    ({"auth": "none", **SWITCHES["keys"]}, "lets everybody in"),
    ({"service": {"type": "LoadBalancer"}}, "let in without a key"),
    ({"service": {"type": "NodePort"}}, "let in without a key"),
    ({"ingress": {"enabled": True, "hosts": ["memory.example"]}}, "let in without a key"),
    ({"auth": "keys", "ingress": {"enabled": True}}, "at least one host"),
    (
        {**SWITCHES["keys"], "serviceMonitor": {"enabled": True}},
        "where there are keys Prometheus needs one",
    ),
    (
        {"auth": "keys", "serviceMonitor": {"enabled": True}},
        "where there are keys Prometheus needs one",
    ),
    ({"metrics": {"mode": "off"}, "serviceMonitor": {"enabled": True}}, "nothing to read"),
    ({"litestream": {"enabled": True}}, "where the copy is to lie"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
)


# Nothing else is said against these.
ACCEPTED: tuple[Values, ...] = (
    {**SWITCHES["keys"], "metrics": {"mode": "open"}, "serviceMonitor": {"enabled": True}},
    {"auth": "keys", "service": {"type": "NodePort"}},
    {"image": {"repository": "localhost:5000/agentops-memory"}},
    {**SWITCHES["database"], **SWITCHES["autoscaling"], "replicaCount": 0},
    {**SWITCHES["database"], "podDisruptionBudget": {"enabled": True}},
    {**SWITCHES["database"], "service": {"publishNotReadyAddresses": True}},
    {"service": {"publishNotReadyAddresses": False}},
    {"backup": {"enabled": True, "existingClaim": "archives", "every": "90m"}},
    {
        "persistence": {"enabled": False},
        "backup": {"enabled": True, "existingClaim": "agentops-memory"},
    },
    dict.fromkeys(("affinity", "commonLabels", "podLabels", "podAnnotations", "settings")),
)


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


def combinations() -> Iterator[Values]:
    """The values of every combination of switches that a service can have."""
    for count in range(len(SWITCHES) + 1):
        for chosen in itertools.combinations(SWITCHES, count):
            excluded = OF_FILES if "database" in chosen else OF_DATABASES
            if not excluded.intersection(chosen):
                yield merged(*(SWITCHES[name] for name in chosen))


def defaults() -> dict[str, Any]:
    """What values.yaml says."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return values


def schema() -> dict[str, Any]:
    """What values.schema.json allows."""
    document: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return document


_LINE = re.compile(r"(?P<indent> *)(?:# (?P<comment>.*)|(?P<key>\w+):.*)")


def documented() -> dict[str, str]:
    """What values.yaml explains: the comment above each value or group of values, by its name."""
    found: dict[str, str] = {}
    path: list[str] = []
    comments: list[str] = []
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        if (match := _LINE.fullmatch(line)) is None:
            continue
        if match["comment"]:
            comments.append(match["comment"])
            continue
        path[len(match["indent"]) // 2 :] = [match["key"]]
        if comments:
            found[".".join(path)] = " ".join(comments)
        comments = []
    return found


def validate(document: Mapping[str, Any], version: str) -> None:
    """By the schemas of a version of Kubernetes, of 108 MB: without them the test is skipped."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=CHECKS)
    assert kubernetes_validate.validate(document, version, strict=True) == version
