"""The manifests under deploy/, read as they stand: the base, the components, the overlays."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentops_memory.server import GRACE
from agentops_memory.settings.settings import VARIABLES, settings

from ..support.chart import GOLDEN, validate
from ..support.manifests import (
    BASE,
    DEPLOY,
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    container,
    manifest,
    pod,
)
from ..support.samples import for_each

COMPONENTS = DEPLOY / "components"
OVERLAYS = DEPLOY / "overlays"
PLATFORM = OVERLAYS / "platform"
MANIFESTS = [
    BASE / name
    for name in (
        "deployment.yaml", "service.yaml", "volume.yaml", "network.yaml", "disruption.yaml",
    )
]  # fmt: skip

SPANS = timedelta(seconds=2)  # that the last spans may take
VARIABLE_NAMES = {variable.name for variable in VARIABLES}


@pytest.mark.slow
@for_each("version", ["1.28", "1.35"])
@for_each("path", MANIFESTS)
def test_a_manifest_follows_the_schema_of_kubernetes(path: Path, version: str) -> None:
    validate(manifest(path), version)


def test_the_base_holds_every_manifest_beside_it() -> None:
    resources = manifest(BASE / "kustomization.yaml")["resources"]

    assert resources == [path.name for path in MANIFESTS]
    assert {path.name for path in BASE.iterdir()} == {*resources, "kustomization.yaml"}


def test_the_only_pod_has_no_privileges_and_writes_to_its_volume_alone() -> None:
    spec = manifest(BASE / "deployment.yaml")["spec"]

    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert manifest(BASE / "volume.yaml")["spec"]["accessModes"] == ["ReadWriteOnce"]

    assert pod()["securityContext"] == RESTRICTED_POD
    assert container()["securityContext"] == RESTRICTED_CONTAINER

    assert pod()["automountServiceAccountToken"] is False
    assert pod()["enableServiceLinks"] is False

    claim = manifest(BASE / "volume.yaml")["metadata"]["name"]

    assert pod()["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    assert container()["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]

    assert container()["resources"]["limits"] == {"cpu": "200m", "memory": "128Mi"}


def test_each_probe_asks_an_endpoint_of_its_own_and_a_start_may_take_an_hour() -> None:
    probes = {name: container()[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    paths = {"startup": "/health/startup", "liveness": "/health/live", "readiness": "/health/ready"}

    for name, probe in probes.items():
        assert probe["httpGet"] == {"path": paths[name], "port": "http"}
        assert probe["timeoutSeconds"] == 5

    startup, liveness = container()["startupProbe"], container()["livenessProbe"]

    assert startup["periodSeconds"] * startup["failureThreshold"] == 3600
    assert manifest(BASE / "deployment.yaml")["spec"]["progressDeadlineSeconds"] > 3600
    assert liveness["periodSeconds"] * liveness["failureThreshold"] == 90


def test_the_pod_has_longer_to_end_than_the_service_needs() -> None:
    drain = settings({each["name"]: each["value"] for each in container()["env"]}).drain

    assert container()["lifecycle"]["preStop"]["exec"]["command"] == [
        "sleep",
        f"{drain.total_seconds():.0f}",
    ]
    assert pod()["terminationGracePeriodSeconds"] == 30
    assert timedelta(seconds=30) > 2 * drain + GRACE + SPANS


def test_the_base_has_the_pod_of_the_chart() -> None:
    documents = yaml.safe_load_all((GOLDEN / "default.yaml").read_text("utf-8"))
    (deployment,) = (each["spec"] for each in documents if each["kind"] == "Deployment")
    charts = deployment["template"]["spec"]
    (of_the_chart,) = charts.pop("containers")
    of_the_base = container()

    assert of_the_chart.pop("image").startswith(of_the_base.pop("image"))
    given, own = of_the_chart.pop("env"), of_the_base.pop("env")
    assert [each for each in own if each not in given] == []
    assert of_the_base == of_the_chart
    assert charts.pop("serviceAccountName") == "agentops-memory"
    assert {name: each for name, each in pod().items() if name != "containers"} == charts
    ours = manifest(BASE / "deployment.yaml")["spec"]
    for name in ("replicas", "strategy", "progressDeadlineSeconds", "revisionHistoryLimit"):
        assert ours[name] == deployment[name]


def test_service_policies_and_budget_choose_the_pods_of_the_deployment() -> None:
    service = manifest(BASE / "service.yaml")

    assert service["metadata"]["name"] == "agentops-memory"
    assert service["spec"]["ports"] == [{"name": "http", "port": 7437, "targetPort": "http"}]
    assert container()["ports"] == [{"name": "http", "containerPort": 7437}]

    deployment = manifest(BASE / "deployment.yaml")["spec"]
    labels = deployment["template"]["metadata"]["labels"]

    assert deployment["selector"]["matchLabels"] == labels
    assert manifest(BASE / "service.yaml")["spec"]["selector"] == labels
    assert set(labels) == {"app.kubernetes.io/name", "app.kubernetes.io/component"}

    assert manifest(BASE / "service.yaml")["spec"]["publishNotReadyAddresses"] is True

    chosen = manifest(BASE / "deployment.yaml")["spec"]["selector"]

    assert manifest(BASE / "network.yaml")["spec"]["podSelector"] == chosen
    assert manifest(BASE / "disruption.yaml")["spec"]["selector"] == chosen
    assert manifest(COMPONENTS / "monitoring" / "monitor.yaml")["spec"]["selector"] == chosen

    assert manifest(BASE / "disruption.yaml")["spec"]["maxUnavailable"] == 1


def test_the_pods_of_the_cluster_may_come_in_and_only_names_are_asked_for_outside() -> None:
    policy = manifest(BASE / "network.yaml")["spec"]
    dns = [{"port": 53, "protocol": kind} for kind in ("UDP", "TCP")]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 7437, "protocol": "TCP"}]}
    ]
    assert policy["egress"] == [{"ports": dns}]


def test_each_component_has_an_overlay_and_the_platforms_has_all_of_them() -> None:
    names = {path.name for path in COMPONENTS.iterdir()}
    used = {
        overlay.name: {path.split("/")[-1] for path in _overlay(overlay.name)["components"]}
        for overlay in OVERLAYS.iterdir()
    }

    assert used == {**{name: {name} for name in names}, "platform": names}


def test_what_a_kustomization_names_is_there_and_nothing_else_lies_beside_it() -> None:
    for file in DEPLOY.rglob("kustomization.yaml"):
        document = manifest(file)
        named = [*document.get("resources", ()), *document.get("components", ())]
        named += [patch["path"] for patch in document.get("patches", ()) if "path" in patch]
        for generated in document.get("configMapGenerator", ()):
            named += generated["files"]

        assert [name for name in named if not (file.parent / name).exists()] == []
        beside = {path.name for path in file.parent.iterdir() if path.is_file()}
        assert beside == {file.name, *(name for name in named if "/" not in name)}


def test_the_tracing_component_sets_the_endpoint_and_lets_its_port_out() -> None:
    patch = COMPONENTS / "tracing" / "endpoint.yaml"
    (variable,) = container(patch)["env"]
    operations: Any = manifest(COMPONENTS / "tracing" / "egress.yaml")
    (added,) = operations

    assert set(container(patch)) == {"name", "env"}
    assert settings({variable["name"]: variable["value"]}).otlp_endpoint == variable["value"]
    assert added["path"] == "/spec/egress/-"
    (port,) = added["value"]["ports"]
    assert variable["value"].endswith(f":{port['port']}")


def test_the_keys_component_reads_the_file_of_a_secret_that_can_change() -> None:
    patch = COMPONENTS / "keys" / "secret.yaml"
    (mount,) = container(patch)["volumeMounts"]
    (volume,) = pod(patch)["volumes"]
    configured = settings({each["name"]: each["value"] for each in container(patch)["env"]})

    assert configured.auth == "keys"
    assert str(configured.keys_file) == f"{mount['mountPath']}/keys"
    assert mount == {"name": "keys", "mountPath": "/etc/agentops-memory", "readOnly": True}
    assert volume == {
        "name": "keys",
        "secret": {"secretName": "agentops-memory-keys", "defaultMode": 0o440},
    }


def test_the_takeover_component_has_the_claim_of_another_and_none_of_its_own() -> None:
    patch = manifest(COMPONENTS / "takeover" / "kustomization.yaml")["patches"][0]["patch"]
    (volume,) = pod(COMPONENTS / "takeover" / "claim.yaml")["volumes"]
    claim = manifest(BASE / "volume.yaml")["metadata"]["name"]

    assert "$patch: delete" in patch
    assert f"name: {claim}\n" in patch
    assert volume["name"] == "data"
    assert volume["persistentVolumeClaim"]["claimName"] != claim


def test_the_backup_component_has_a_volume_of_its_own() -> None:
    component = COMPONENTS / "backup"
    (volume,) = pod(component / "backup.yaml")["volumes"]
    (mounted,) = container(component / "backup.yaml")["volumeMounts"]
    given = {each["name"]: each["value"] for each in container(component / "backup.yaml")["env"]}
    claim = manifest(component / "volume.yaml")["metadata"]["name"]

    assert volume["name"] == mounted["name"] == "backup"
    assert volume["persistentVolumeClaim"]["claimName"] == claim
    assert claim != manifest(BASE / "volume.yaml")["metadata"]["name"]
    assert str(settings(given).backup_dir) == mounted["mountPath"] == "/backup"


def test_the_monitor_asks_the_port_of_the_service_for_its_measures() -> None:
    (port,) = manifest(BASE / "service.yaml")["spec"]["ports"]
    for path in (COMPONENTS / "monitoring" / "monitor.yaml", PLATFORM / "scraping.yaml"):
        (endpoint,) = manifest(path)["spec"]["endpoints"]

        assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")


def test_a_patch_is_of_the_deployment_and_its_only_container() -> None:
    for path in DEPLOY.rglob("*.yaml"):
        document = manifest(path)
        if isinstance(document, dict) and document.get("kind") == "Deployment":
            assert document["metadata"]["name"] == "agentops-memory"
            assert [each["name"] for each in pod(path).get("containers", ())] in ([], ["memory"])


def test_every_variable_under_deploy_is_a_setting() -> None:
    texts = [path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file()]
    named = {
        name for text in texts for name in re.findall(r"\bMEMORY_[A-Z_]+|\bOTEL_[A-Z_]+", text)
    }

    assert named - VARIABLE_NAMES == set()
    assert {"MEMORY_AUTH", "MEMORY_KEYS_FILE", "OTEL_EXPORTER_OTLP_ENDPOINT"} <= named


def _overlay(name: str) -> dict[str, list[str]]:
    overlay = manifest(OVERLAYS / name / "kustomization.yaml")
    assert [(OVERLAYS / name / path).resolve() for path in overlay["resources"]] == [BASE]
    return overlay
