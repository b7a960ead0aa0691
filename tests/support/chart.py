"""The Helm chart: its values, what is rendered with which of them, and what it refuses."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Values that are refused, and what Helm 3 or 4 says of them."""

    values: Values
    because: str


REFUSED = (
    Refused(values={"replicaCount": 2}, because="replicaCount"),
    Refused(values={"autoscaling": {"enabled": True}}, because="autoscaling.enabled"),
    Refused(
        values={**SWITCHES["database"], "autoscaling": {"minReplicas": 1}}, because="minReplicas"
    ),
    Refused(
        values={**SWITCHES["database"], "autoscaling": {"minReplicas": 5}},
        because="less than autoscaling.minReplicas",
    ),
    Refused(values={"database": {"url": "postgresql://memory@db/memory"}}, because="'?url"),
    Refused(values={"database": {"pool": 0}}, because="database.pool"),
    Refused(values={"database": {"retention": "a week"}}, because="database.retention"),
    Refused(
        values={"settings": {"MEMORY_DATABASE_URL": "postgresql://memory@db/memory"}},
        because="MEMORY_DATABASE_URL",
    ),
    Refused(
        values={"extraEnv": [{"name": "MEMORY_DATABASE_URL", "value": "postgresql://db/memory"}]},
        because="MEMORY_DATABASE_URL",
    ),
    Refused(
        values={**SWITCHES["database"], **SWITCHES["keys"]}, because="the keys are in the database"
    ),
    Refused(values={**SWITCHES["database"], **SWITCHES["backup"]}, because="by its own means"),
    Refused(values={**SWITCHES["database"], **SWITCHES["litestream"]}, because="by its own means"),
    Refused(
        values={**SWITCHES["database"], **SWITCHES["takeover"]},
        because="not used with database.existingSecret",
    ),
    Refused(values={"replicaCount": -1}, because="replicaCount"),
    Refused(values={"replicas": 1}, because="[Aa]dditional propert(y|ies) '?replicas"),
    Refused(values={"image": {"tga": "1"}}, because="[Aa]dditional propert(y|ies) '?tga"),
    Refused(values={"image": {"digest": "sha256:0"}}, because="image.digest"),
    Refused(values={"image": {"repository": "registry.example/m:1"}}, because="image.repository"),
    Refused(values={"persistence": {"enabled": None}}, because="enabled"),
    Refused(values={"networkPolicy": {"from": None}}, because="from"),
    Refused(values={"podLabels": {"note": "two words"}}, because="podLabels.note"),
    Refused(values={"resources": {"claims": [{"name": "gpu"}]}}, because="claims"),
    Refused(values={"drainSeconds": "5s"}, because="drainSeconds"),
    Refused(
        values={"drainSeconds": 10, "terminationGracePeriodSeconds": 39},
        because="39 is too short; with drainSeconds 10 the service needs 40",
    ),
    Refused(values={"settings": {"MEMORY_DRAIN": "5s"}}, because="MEMORY_DRAIN"),
    Refused(values={"settings": {"MEMORY_SESSION_IDLE": "1 day"}}, because="MEMORY_SESSION_IDLE"),
    Refused(values={"extraEnv": [{"name": "MEMORY_AUTH"}]}, because="MEMORY_AUTH has a value"),
    Refused(values={"extraEnv": [{"name": "MEMORY_NEW"}]}, because="belongs into settings"),
    Refused(
        values={"extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "c:1"}]},
        because="OTEL_EXPORTER_OTLP_ENDPOINT has a value",
    ),
    Refused(
        values={"extraEnv": [{"name": "OTEL_EXPORTER_OTLP_PROTOCOL", "value": "grpc"}]},
        because="OTEL_EXPORTER_OTLP_PROTOCOL has a value",
    ),
    Refused(values={"otlp": {"endpoint": "collector:65536"}}, because="otlp.endpoint"),
    Refused(values={"otlp": {"endpoint": "collector"}}, because="otlp.endpoint"),
    Refused(values={"networkPolicy": {"from": [{}]}}, because="networkPolicy.from.0"),
    Refused(values={"networkPolicy": {"from": []}}, because="networkPolicy.from"),
    Refused(values={"persistence": {"existingClaim": "two words"}}, because="existingClaim"),
    Refused(values={"litestream": {"url": "s3://backups?x"}}, because="litestream.url"),
    Refused(values={"litestream": {"tenants": ["../x"]}}, because="litestream.tenants"),
    Refused(values={"litestream": {"tenants": ["default"]}}, because="litestream.tenants"),
    Refused(values={"image": {"tag": 1.1}}, because="image.tag"),
    Refused(values={"drainSeconds": 601}, because="drainSeconds"),
    Refused(values={"startupSeconds": 59}, because="startupSeconds"),
    Refused(values={"settings": {"MEMORY_CONTEXT_LIMIT": 51}}, because="MEMORY_CONTEXT_LIMIT"),
    Refused(values={"settings": {"MEMORY_LOG_LEVEL": "critical"}}, because="MEMORY_LOG_LEVEL"),
    Refused(values={"persistence": {"accessModes": ["ReadWriteMany"]}}, because="accessModes"),
    Refused(
        values={"persistence": {"enabled": False, "existingClaim": "data"}},
        because="not used while persistence.enabled is false",
    ),
    Refused(values={"backup": {"enabled": True, "every": "0"}}, because="backup.every"),
    Refused(values={"backup": {"enabled": True, "every": "30s"}}, because="backup.every"),
    Refused(values={"backup": {"enabled": True, "keep": 0}}, because="backup.keep"),
    Refused(values={"settings": {"MEMORY_BACKUP_DIR": "/b"}}, because="MEMORY_BACKUP_DIR"),
    Refused(
        values={"backup": {"existingClaim": "archives"}},
        because="not used while backup.enabled is false",
    ),
    Refused(
        values={"backup": {"enabled": True, "existingClaim": "agentops-memory"}},
        because="lost with it",
    ),
    Refused(
        values={
            "backup": {"enabled": True},
            "persistence": {"existingClaim": "agentops-memory-backup"},
        },
        because="lost with it",
    ),
    Refused(values={"auth": "none", **SWITCHES["keys"]}, because="lets everybody in"),
    Refused(values={"service": {"type": "LoadBalancer"}}, because="let in without a key"),
    Refused(values={"service": {"type": "NodePort"}}, because="let in without a key"),
    Refused(
        values={"ingress": {"enabled": True, "hosts": ["memory.example"]}},
        because="let in without a key",
    ),
    Refused(values={"auth": "keys", "ingress": {"enabled": True}}, because="at least one host"),
    Refused(
        values={**SWITCHES["keys"], "serviceMonitor": {"enabled": True}},
        because="where there are keys Prometheus needs one",
    ),
    Refused(
        values={"auth": "keys", "serviceMonitor": {"enabled": True}},
        because="where there are keys Prometheus needs one",
    ),
    Refused(
        values={"metrics": {"mode": "off"}, "serviceMonitor": {"enabled": True}},
        because="nothing to read",
    ),
    Refused(values={"litestream": {"enabled": True}}, because="where the copy is to lie"),
    Refused(values={"podDisruptionBudget": {"maxUnavailable": 0}}, because="maxUnavailable"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A line of values.yaml that has a comment above it: a value, or a group of values."""

    name: str
    comment: str

    @property
    def row(self) -> str:
        """The value in the table of the documents."""
        default: Any = defaults()
        for part in self.name.split("."):
            default = default[part]
        return f"| `{self.name}` | `{json.dumps(default)}` | {self.comment} |"


_LINE = re.compile(r"(?P<indent> *)(?:# (?P<comment>.*)|(?P<key>\w+):.*)")


def documented() -> list[Value]:
    """What values.yaml explains, in its order."""
    found: list[Value] = []
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
            found.append(Value(name=".".join(path), comment=" ".join(comments)))
        comments = []
    return found


def validate(document: Mapping[str, Any], version: str) -> None:
    """By the schemas of a version of Kubernetes, of 108 MB: without them the test is skipped."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=CHECKS)
    assert kubernetes_validate.validate(document, version, strict=True) == version
