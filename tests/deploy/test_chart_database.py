"""The chart's service on PostgreSQL: several pods, no volume, the database's URL of a secret."""

import re
from collections.abc import Mapping

import pytest

from ..support.chart import GOLDEN, ON_DATABASE
from ..support.chart_documents import (
    Document,
    environment,
    memory,
    one,
    rendered_cases,
    service_pod,
)


@pytest.fixture(scope="module")
def rendered() -> Mapping[str, list[Document]]:
    """The documents of each case on a database."""
    return {name: documents for name, documents in rendered_cases().items() if name in ON_DATABASE}


def reference(documents: list[Document]) -> Document:
    """Where the URL of the database comes from."""
    (only,) = (each for each in memory(documents)["env"] if each["name"] == "MEMORY_DATABASE_URL")
    return dict(only)


def test_the_url_is_of_a_secret_and_nowhere_else(rendered: Mapping[str, list[Document]]) -> None:
    secrets = {
        "database": {"name": "memory-database", "key": "url"},
        "autoscaled": {"name": "memory-database-app", "key": "uri"},
    }

    for name, documents in rendered.items():
        assert reference(documents) == {
            "name": "MEMORY_DATABASE_URL",
            "valueFrom": {"secretKeyRef": secrets[name]},
        }
        assert not {"command", "args"} & memory(documents).keys()
        assert not re.search("postgres(ql)?://", (GOLDEN / f"{name}.yaml").read_text("utf-8"))


def test_nothing_is_kept_outside_the_database(rendered: Mapping[str, list[Document]]) -> None:
    for documents in rendered.values():
        kinds = {each["kind"] for each in documents}
        pod = service_pod(documents)

        assert not {"PersistentVolumeClaim", "ConfigMap"} & kinds
        assert [each["name"] for each in pod["containers"]] == ["memory"]
        assert "initContainers" not in pod
        # Large bodies lie there while they are received.
        assert pod["volumes"][0] == {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}
        assert memory(documents)["volumeMounts"][0] == {"name": "data", "mountPath": "/data"}


def test_an_update_takes_no_pod_away_before_another_serves(
    rendered: Mapping[str, list[Document]],
) -> None:
    for documents in rendered.values():
        assert one(documents, "Deployment")["spec"]["strategy"] == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
        }
        hooks = [each["metadata"].get("annotations", {}).get("helm.sh/hook") for each in documents]
        assert {*hooks} == {None, "test"}  # the first new pod migrates the database


def test_an_autoscaler_counts_the_pods_where_it_is_on(
    rendered: Mapping[str, list[Document]],
) -> None:
    scaler = one(rendered["autoscaled"], "HorizontalPodAutoscaler")["spec"]

    assert one(rendered["database"], "Deployment")["spec"]["replicas"] == 3
    assert "replicas" not in one(rendered["autoscaled"], "Deployment")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "agentops-memory"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 4)
    assert scaler["metrics"] == [
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80},
            },
        }
    ]


def test_several_pods_lie_apart_and_one_of_them_stays(
    rendered: Mapping[str, list[Document]],
) -> None:
    for documents in rendered.values():
        selector = one(documents, "Deployment")["spec"]["selector"]
        spread = service_pod(documents)["topologySpreadConstraints"]

        budget = one(documents, "PodDisruptionBudget")["spec"]
        assert budget == {"minAvailable": 1, "selector": selector}
        assert [each["topologyKey"] for each in spread] == [
            "topology.kubernetes.io/zone", "kubernetes.io/hostname",
        ]  # fmt: skip
        assert all(each["labelSelector"] == selector for each in spread)


def test_pods_have_equal_parts_of_a_rate_limit_and_with_an_autoscaler_each_the_whole(
    rendered: Mapping[str, list[Document]],
) -> None:
    limits = {name: environment(each)["MEMORY_RATE_LIMIT"] for name, each in rendered.items()}

    assert limits == {"database": "34/s", "autoscaled": "100/s"}  # a third, rounded up


def test_the_policy_lets_the_database_be_reached(rendered: Mapping[str, list[Document]]) -> None:
    rules = {
        name: one(documents, "NetworkPolicy")["spec"]["egress"][1:]
        for name, documents in rendered.items()
    }

    cluster = {"podSelector": {"matchLabels": {"cnpg.io/cluster": "memory"}}}
    assert rules == {
        "database": [{"ports": [{"port": 5432, "protocol": "TCP"}]}],
        "autoscaled": [{"ports": [{"port": 6432, "protocol": "TCP"}], "to": [cluster]}],
    }


def test_seal_keys_and_redaction_rules_are_mounted(rendered: Mapping[str, list[Document]]) -> None:
    documents = rendered["autoscaled"]
    mount = memory(documents)["volumeMounts"][-1]
    given = environment(documents)

    assert mount == {"name": "files", "mountPath": "/etc/agentops-memory/files", "readOnly": True}
    assert {given["MEMORY_SEAL_FILE"], given["MEMORY_REDACTION_FILE"]} == {
        f"{mount['mountPath']}/seal", f"{mount['mountPath']}/redaction",
    }  # fmt: skip
