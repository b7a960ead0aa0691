"""The manifests under deploy/, read as they stand: the base, the components, the overlays."""

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from agentops_memory.settings import VARIABLES, settings

from ..support.chart import GOLDEN, validate
from ..support.manifests import BASE, DEPLOY, container, manifest, pod
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
    claim = manifest(BASE / "volume.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert pod()["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert container()["resources"]["limits"] == {"cpu": "200m", "memory": "128Mi"}


def test_service_policies_and_budget_choose_the_pods_of_the_deployment() -> None:
    service, budget = manifest(BASE / "service.yaml"), manifest(BASE / "disruption.yaml")
    deployment = manifest(BASE / "deployment.yaml")["spec"]
    chosen = deployment["selector"]
    labels = deployment["template"]["metadata"]["labels"]

    assert service["metadata"]["name"] == "agentops-memory"
    assert service["spec"]["ports"] == [{"name": "http", "port": 7437, "targetPort": "http"}]
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == chosen["matchLabels"] == labels
    assert set(labels) == {"app.kubernetes.io/name", "app.kubernetes.io/component"}
    assert manifest(BASE / "network.yaml")["spec"]["podSelector"] == chosen
    assert manifest(COMPONENTS / "monitoring" / "monitor.yaml")["spec"]["selector"] == chosen
    assert budget["spec"] == {"maxUnavailable": 1, "selector": chosen}


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


def patched(path: Path) -> tuple[Any, Any, Any]:
    """The settings that a patch of the pod makes, its mount and its volume, if it has one."""
    given = {each["name"]: each["value"] for each in container(path).get("env", ())}
    (mount,), (volume,) = container(path).get("volumeMounts", [{}]), pod(path).get("volumes", [{}])
    return settings(given), mount, volume


def test_a_component_sets_what_it_is_named_after_and_mounts_what_it_needs() -> None:
    tracing, *_ = patched(COMPONENTS / "tracing" / "endpoint.yaml")
    (added,) = cast("Any", manifest(COMPONENTS / "tracing" / "egress.yaml"))
    (port,) = added["value"]["ports"]
    assert added["path"] == "/spec/egress/-"
    assert str(tracing.otlp_endpoint).endswith(f":{port['port']}")

    settings_of, mount, volume = patched(COMPONENTS / "keys" / "secret.yaml")
    assert settings_of.auth == "keys"
    assert str(settings_of.keys_file) == f"{mount['mountPath']}/keys"
    assert mount == {"name": "keys", "mountPath": "/etc/agentops-memory", "readOnly": True}
    secret = {"secretName": "agentops-memory-keys", "defaultMode": 0o440}
    assert volume == {"name": "keys", "secret": secret}

    takeover = COMPONENTS / "takeover"
    own = manifest(BASE / "volume.yaml")["metadata"]["name"]
    patch = manifest(takeover / "kustomization.yaml")["patches"][0]["patch"]
    (volume,) = pod(takeover / "claim.yaml")["volumes"]
    assert "$patch: delete" in patch
    assert f"name: {own}\n" in patch
    assert volume["name"] == "data"
    assert volume["persistentVolumeClaim"]["claimName"] != own

    settings_of, mount, volume = patched(COMPONENTS / "backup" / "backup.yaml")
    claim = manifest(COMPONENTS / "backup" / "volume.yaml")["metadata"]["name"]
    assert volume["name"] == mount["name"] == "backup"
    assert volume["persistentVolumeClaim"]["claimName"] == claim != own
    assert str(settings_of.backup_dir) == mount["mountPath"] == "/backup"


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
