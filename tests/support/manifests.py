"""The manifests under deploy/, read as they stand, and what an operator watches there."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
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


WORDS = frozenset(
    """
    and or on by bool time sum min max count avg rate increase changes absent vector predict_linear
    histogram_quantile avg_over_time min_over_time max_over_time
    """.split()
)

LABELS = frozenset({"job", "instance", "namespace"})
"""What Prometheus itself adds to all that it scrapes; namespace in a cluster."""

SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"[^\"]*\"")
GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
NAME = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")
DURATION = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query's metrics, each with the labels of its selectors, and the labels it groups by."""

    metrics: dict[str, set[str]]
    grouping: set[str]


def query_of(expression: str) -> Query:
    """What the expression refers to; whatever is no known word is taken for a metric."""
    metrics: dict[str, set[str]] = {}
    for name, matchers in SELECTOR.findall(expression):
        metrics.setdefault(name, set()).update(MATCHER.findall(matchers))
    grouping = {
        label.strip() for labels in GROUPING.findall(expression) for label in labels.split(",")
    }
    bare = DURATION.sub("", GROUPING.sub("", SELECTOR.sub("", expression)))
    for name in set(NAME.findall(bare)) - WORDS:
        metrics.setdefault(name, set())
    return Query(metrics=metrics, grouping=grouping)


DASHBOARD = DEPLOY / "grafana" / "agentops-memory.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return document


def panels() -> list[dict[str, Any]]:
    """The panels that show something, without the headings of rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    (group,) = manifest(ALERTS)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard and of the alerts, with the name of what asks it."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in dashboard()["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["name"], annotation["expr"]
    for alert in alerts():
        yield alert["alert"], alert["expr"]
