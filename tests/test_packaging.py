"""What is shipped: the package, the image's recipe and the manifests, read as they stand."""

import re
import shlex
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hatchling.build import build_wheel

import agentops_memory
from agentops_memory.settings import VARIABLES, settings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "service" / "agentops_memory"
BASE = ROOT / "deploy" / "base"
TRACING = ROOT / "deploy" / "overlays" / "tracing"
MANIFESTS = [BASE / "deployment.yaml", BASE / "service.yaml", BASE / "volume.yaml"]

NOBODY = 65534
PROBE = {"path": "/health", "port": "http"}


def manifest(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = manifest(BASE / "deployment.yaml")["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    assert isinstance(only, dict)
    return only


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile, each instruction with what it says, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def final_stage(word: str) -> list[str]:
    """What the last stage of the Dockerfile says with this instruction."""
    lines = instructions()
    last = max(at for at, (name, _) in enumerate(lines) if name == "FROM")
    return [rest for name, rest in lines[last:] if name == word]


def image_environment() -> dict[str, str]:
    return dict(
        assignment.split("=", 1) for line in final_stage("ENV") for assignment in shlex.split(line)
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return folder / build_wheel(str(folder))


def test_the_wheel_holds_every_source_file_and_migration(wheel: Path) -> None:
    sources = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert packed == sources
    assert any(name.endswith(".sql") for name in packed)


def test_the_wheel_is_named_after_the_one_version(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["dynamic"] == ["version"]
    assert "version" not in project
    assert wheel.name == f"agentops_memory-{agentops_memory.__version__}-py3-none-any.whl"


def test_the_manifests_run_the_image_of_this_version() -> None:
    images = manifest(BASE / "kustomization.yaml")["images"]

    assert images == [{"name": container()["image"], "newTag": agentops_memory.__version__}]


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)

    assert newest is not None
    assert newest[1] == agentops_memory.__version__


def test_the_image_runs_the_program_and_serves_by_default() -> None:
    assert final_stage("ENTRYPOINT") == ['["agentops-memory"]']
    assert final_stage("CMD") == ['["serve"]']


def test_the_image_runs_as_nobody() -> None:
    assert final_stage("USER") == [f"{NOBODY}:{NOBODY}"]


def test_the_image_keeps_its_data_in_a_volume_that_nobody_owns() -> None:
    (setup,) = final_stage("RUN")

    assert final_stage("VOLUME") == ["/data"]
    assert f"install -d -o {NOBODY} -g {NOBODY} /data" in setup


def test_the_image_asks_its_own_program_whether_it_is_healthy() -> None:
    (check,) = final_stage("HEALTHCHECK")

    assert check.endswith('CMD ["agentops-memory", "health"]')


def test_the_image_needs_no_package_of_the_distribution() -> None:
    commands = " ".join(rest for word, rest in instructions() if word == "RUN")

    assert not re.search(r"\b(apt|apt-get|apk|curl|wget)\b", commands)


def test_the_settings_of_the_image_are_the_deployments() -> None:
    environment = image_environment()
    configured = settings(environment)

    known = {variable.name for variable in VARIABLES}
    assert {name for name in environment if name.startswith("MEMORY_")} <= known
    assert configured.listen.host == ""
    assert final_stage("EXPOSE") == [str(configured.listen.port)] == ["7437"]
    assert configured.db_path == Path("/data/memory.db")


def test_the_image_writes_no_bytecode_and_holds_no_output_back() -> None:
    environment = image_environment()

    assert environment["PYTHONDONTWRITEBYTECODE"] == environment["PYTHONUNBUFFERED"] == "1"


def test_the_stages_of_the_image_have_one_base() -> None:
    bases = {rest.split()[0] for word, rest in instructions() if word == "FROM"}

    assert len(bases) == 1


@pytest.mark.parametrize("version", ["1.28", "1.35"])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_follows_the_schema_of_kubernetes(path: Path, version: str) -> None:
    assert kubernetes_validate.validate(manifest(path), version, strict=True) == version


def test_the_base_holds_every_manifest_beside_it() -> None:
    resources = manifest(BASE / "kustomization.yaml")["resources"]

    assert resources == [path.name for path in MANIFESTS]
    assert {path.name for path in BASE.iterdir()} == {*resources, "kustomization.yaml"}


def test_two_pods_never_hold_the_volume() -> None:
    spec = manifest(BASE / "deployment.yaml")["spec"]

    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert manifest(BASE / "volume.yaml")["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_pod_runs_as_nobody_without_privileges() -> None:
    assert pod()["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": NOBODY,
        "runAsGroup": NOBODY,
        "fsGroup": NOBODY,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_pod_knows_nothing_of_the_cluster() -> None:
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["enableServiceLinks"] is False


def test_the_pod_can_write_to_its_volume_and_nowhere_else() -> None:
    claim = manifest(BASE / "volume.yaml")["metadata"]["name"]

    assert pod()["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    assert container()["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_the_pod_stays_within_the_limits_of_the_existing_deployment() -> None:
    assert container()["resources"]["limits"] == {"cpu": "200m", "memory": "128Mi"}


@pytest.mark.parametrize("name", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_a_probe_asks_health_and_waits_one_second(name: str) -> None:
    probe = container()[name]

    assert (probe["httpGet"], probe["timeoutSeconds"]) == (PROBE, 1)


def test_three_misses_in_ninety_seconds_restart_the_pod() -> None:
    probe = container()["livenessProbe"]

    assert (probe["periodSeconds"], probe["failureThreshold"]) == (30, 3)


def test_the_pod_has_longer_to_end_than_the_service_needs() -> None:
    assert pod()["terminationGracePeriodSeconds"] == 30
    assert settings({}).drain.total_seconds() < 30


def test_the_service_has_the_name_and_the_port_that_agents_know() -> None:
    service = manifest(BASE / "service.yaml")

    assert service["metadata"]["name"] == "agentops-memory"
    assert service["spec"]["ports"] == [{"name": "http", "port": 7437, "targetPort": "http"}]
    assert container()["ports"] == [{"name": "http", "containerPort": 7437}]


def test_the_service_and_the_deployment_choose_the_same_pods() -> None:
    deployment = manifest(BASE / "deployment.yaml")["spec"]
    labels = deployment["template"]["metadata"]["labels"]

    assert deployment["selector"]["matchLabels"] == labels
    assert manifest(BASE / "service.yaml")["spec"]["selector"] == labels
    assert set(labels) == {"app.kubernetes.io/name", "app.kubernetes.io/component"}


def test_the_tracing_overlay_changes_only_the_variable_of_the_endpoint() -> None:
    overlay = manifest(TRACING / "kustomization.yaml")
    patch = manifest(TRACING / "endpoint.yaml")
    (patched,) = patch["spec"]["template"]["spec"]["containers"]
    (variable,) = patched["env"]

    assert [(TRACING / path).resolve() for path in overlay["resources"]] == [BASE]
    assert overlay["patches"] == [{"path": "endpoint.yaml"}]
    assert patch["metadata"] == {"name": manifest(BASE / "deployment.yaml")["metadata"]["name"]}
    assert set(patched) == {"name", "env"}
    assert patched["name"] == container()["name"]
    assert settings({variable["name"]: variable["value"]}).otlp_endpoint == variable["value"]
