"""The Helm chart as it is rendered: `.ci/chart-test` compares these files with two Helms."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentops_memory.server import GRACE
from agentops_memory.settings import VARIABLES, settings

from ..support.chart import CASES, CHART, GOLDEN, ON_DATABASE, ON_FILES, schema, validate
from ..support.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD
from ..support.service import serving

Document = dict[str, Any]

FOREIGN = {"ServiceMonitor"}  # a kind of the Prometheus operator
KNOWN = {variable.name for variable in VARIABLES}
SHUTDOWN = GRACE.total_seconds() + 2  # what was accepted, then traces
OPEN = {"default", "takeover", "litestream", "stopped", "database"}  # to everybody
PROBES = {
    "startupProbe": "/health/startup", "livenessProbe": "/health/live",
    "readinessProbe": "/health/ready",
}  # fmt: skip


@cache
def rendered() -> Mapping[str, list[Document]]:
    """The documents of each case."""
    return {
        name: list(yaml.load_all((GOLDEN / f"{name}.yaml").read_text("utf-8"), yaml.CSafeLoader))
        for name in CASES
    }


def all_of(kind: str) -> list[Document]:
    return [each for documents in rendered().values() for each in documents if each["kind"] == kind]


def one(case: str, kind: str) -> Any:
    """The only document of a kind; without its metadata, if it has a specification."""
    (only,) = (each for each in rendered()[case] if each["kind"] == kind)
    return only.get("spec", only)


def service_pod(case: str) -> Document:
    return dict(one(case, "Deployment")["template"]["spec"])


def memory(case: str) -> Document:
    """The container of the service."""
    return named(service_pod(case)["containers"], "memory")


def named(parts: list[Document], name: str) -> Document:
    (only,) = (each for each in parts if each["name"] == name)
    return only


def environment(case: str) -> dict[str, str]:
    """The variables of the service, but those of a secret."""
    return {each["name"]: each["value"] for each in memory(case)["env"] if "value" in each}


def pods() -> Iterator[Document]:
    """The specification of each pod, whatever makes it."""
    yield from (each["spec"] for each in all_of("Pod"))
    yield from map(service_pod, CASES)


def containers(pod: Document) -> list[Document]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_the_notes_tell_the_next_step_and_what_is_open_or_lost() -> None:
    files = {path.name for path in GOLDEN.iterdir()}
    assert files == {f"{name}.{kind}" for name in CASES for kind in ("yaml", "txt")}

    docs = CHART.parents[1] / "docs"
    for name in CASES:
        notes = (GOLDEN / f"{name}.txt").read_text("utf-8")

        assert "-n agents rollout status deployment/agentops-memory" in notes
        assert "-n agents port-forward service/agentops-memory 7437" in notes
        assert ("no key is required" in notes) is (name in OPEN)
        assert ("are lost when the pod ends" in notes) is (name == "stopped")
        assert ("claim data-of-the-original." in notes) is (name == "takeover")
        assert ("database of the secret" in notes) is (name in ON_DATABASE)
        for page, anchor in re.findall(r"docs/(\w+\.md)#([a-z-]+)", notes):
            heading = f"## {anchor.replace('-', ' ').capitalize()}"
            assert f"\n{heading}\n" in (docs / page).read_text("utf-8")


@pytest.mark.slow
def test_what_is_rendered_follows_the_schemas_of_kubernetes() -> None:
    distinct = {json.dumps(each) for documents in rendered().values() for each in documents}

    for document in map(json.loads, distinct):
        if document["kind"] not in FOREIGN:
            validate(document, "1.28")


def test_every_pod_and_container_is_restricted_and_has_no_volume_of_its_node() -> None:
    assert len([*pods()]) == 2 * len(CASES)  # the service's, and that of `helm test`
    for pod in pods():
        assert pod["securityContext"] == RESTRICTED_POD
        assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()

    every = [container for pod in pods() for container in containers(pod)]
    names = {"memory", "ready", "restore", "restore-1", "restore-2", "litestream"}
    assert {each["name"] for each in every} == names
    for container in every:
        assert container["securityContext"] == RESTRICTED_CONTAINER
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}

    kinds = {
        kind
        for pod in pods()
        for volume in pod.get("volumes", [])
        for kind in volume.keys() - {"name"}
    }
    assert kinds == {"persistentVolumeClaim", "secret", "configMap", "emptyDir"}


def test_two_pods_never_hold_the_volume_and_its_claim_outlives_the_release() -> None:
    for name in ON_FILES:
        assert one(name, "Deployment")["replicas"] == (0 if name == "stopped" else 1)
        assert one(name, "Deployment")["strategy"] == {"type": "Recreate"}
    claims = all_of("PersistentVolumeClaim")
    modes = {mode for claim in claims for mode in claim["spec"]["accessModes"]}
    assert modes == {"ReadWriteOnce", "ReadWriteOncePod"}

    # None for another's claim, none without persistence, one for the backups of everything.
    names = [claim["metadata"]["name"] for claim in claims]
    assert sorted(names) == [*["agentops-memory"] * (len(ON_FILES) - 2), "agentops-memory-backup"]
    for claim in claims:
        assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    original = {"claimName": "data-of-the-original"}
    assert service_pod("takeover")["volumes"] == [
        {"name": "data", "persistentVolumeClaim": original}
    ]


def test_the_service_has_the_name_port_and_pod_that_agents_know() -> None:
    for name in CASES:
        (service,) = (each for each in rendered()[name] if each["kind"] == "Service")
        (test,) = (each for each in rendered()[name] if each["kind"] == "Pod")
        deployment = one(name, "Deployment")
        selector = service["spec"]["selector"]

        assert service["metadata"]["name"] == "agentops-memory"
        assert service["spec"]["ports"] == [{"name": "http", "port": 7437, "targetPort": "http"}]
        assert service["spec"]["publishNotReadyAddresses"] is (name in ON_FILES)
        assert memory(name)["ports"] == [{"name": "http", "containerPort": 7437}]
        assert selector == deployment["selector"]["matchLabels"]
        assert selector.items() <= deployment["template"]["metadata"]["labels"].items()
        assert not selector.items() <= test["metadata"]["labels"].items()


def test_probes_have_their_paths_and_a_pod_the_time_to_start_and_to_end() -> None:
    for name in CASES:
        for probe, path in PROBES.items():
            assert memory(name)[probe]["httpGet"] == {"path": path, "port": "http"}
            assert memory(name)[probe]["timeoutSeconds"] == 5
        drain = settings(environment(name)).drain.total_seconds()
        pause = memory(name).get("lifecycle", {}).get("preStop", {}).get("exec", {})
        assert pause.get("command", ["sleep", "0"]) == ["sleep", f"{drain:.0f}"]
        assert service_pod(name)["terminationGracePeriodSeconds"] >= 2 * drain + SHUTDOWN + 3

    probes = {name: memory("default")[name] for name in PROBES}
    patience = {name: it["periodSeconds"] * it["failureThreshold"] for name, it in probes.items()}
    assert patience == {"startupProbe": 3600, "livenessProbe": 90, "readinessProbe": 30}
    assert one("default", "Deployment")["progressDeadlineSeconds"] == 4200
    assert memory("everything")["startupProbe"]["failureThreshold"] == 1441  # 7201 s


def test_what_is_asked_over_http_exists(tmp_path: Path) -> None:
    paths = {*PROBES.values()}
    for monitor in all_of("ServiceMonitor"):
        paths |= {endpoint["path"] for endpoint in monitor["spec"]["endpoints"]}
    for test in all_of("Pod"):
        (script,) = test["spec"]["containers"][0]["args"]
        paths |= set(re.findall(r"agentops-memory:7437(/[\w/]+)", script))

    assert paths == {*PROBES.values(), "/metrics"}
    with serving(tmp_path / "memory.db") as service:
        statuses = {path: service.http.get(path).status_code for path in paths}
    assert statuses == dict.fromkeys(paths, 200)


def test_the_service_understands_its_environment_and_every_setting_has_a_value() -> None:
    for name in CASES:
        given = environment(name)
        configured = settings(given)

        assert given.keys() - {"OTEL_SERVICE_NAME"} <= KNOWN
        assert ("MEMORY_DB_PATH" in given) is (name in ON_FILES)
        assert (configured.listen.host, configured.listen.port) == ("", 7437)
    configured = settings(environment("everything"))
    assert configured.db_path == Path("/data/memory.db")
    assert configured.tenant_quota == 1048576
    assert configured.auto_save is False

    own = environment("everything").keys() - {"OTEL_SERVICE_NAME"}
    free = schema()["properties"]["settings"]["properties"].keys()
    database = environment("autoscaled").keys() - own - free
    assert own | free | database | {"MEMORY_DATABASE_URL"} == KNOWN
    assert database == {"MEMORY_DATABASE_POOL", "MEMORY_DATABASE_RETENTION"}
    assert own & free == {"MEMORY_TENANT_QUOTA", "MEMORY_AUTO_SAVE"}  # of the case itself


def test_keys_seal_keys_and_redaction_rules_are_mounted_read_only() -> None:
    folder = "/etc/agentops-memory"
    mount = named(memory("keys")["volumeMounts"], "keys")
    assert mount == {"name": "keys", "mountPath": f"{folder}/keys", "readOnly": True}
    assert named(service_pod("keys")["volumes"], "keys")["secret"] == {
        "secretName": "agentops-memory-keys", "defaultMode": 0o440,
    }  # fmt: skip
    assert environment("keys")["MEMORY_KEYS_FILE"] == f"{folder}/keys/keys"
    assert environment("keys")["MEMORY_AUTH"] == "keys"

    mount, given = memory("autoscaled")["volumeMounts"][-1], environment("autoscaled")
    assert mount == {"name": "files", "mountPath": f"{folder}/files", "readOnly": True}
    assert given["MEMORY_SEAL_FILE"] == f"{folder}/files/seal"
    assert given["MEMORY_REDACTION_FILE"] == f"{folder}/files/redaction"


def test_the_policy_lets_in_whom_it_names_and_out_what_is_needed() -> None:
    policy = one("default", "NetworkPolicy")
    (ingress,) = policy["ingress"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert ingress["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert ingress["from"][:-1] == [{"namespaceSelector": {}}]

    for case, ports in (
        ("default", [53, 53]), ("everything", [53, 53, 4318, 9000, 8443]),
        ("database", [53, 53, 5432]), ("autoscaled", [53, 53, 6432]),
    ):  # fmt: skip
        egress = one(case, "NetworkPolicy")["egress"]
        assert [port["port"] for rule in egress for port in rule["ports"]] == ports
    cluster = {"podSelector": {"matchLabels": {"cnpg.io/cluster": "memory"}}}
    assert one("autoscaled", "NetworkPolicy")["egress"][-1]["to"] == [cluster]


def test_litestream_is_told_of_the_database_and_of_each_tenant() -> None:
    def databases(case: str) -> Any:
        return yaml.safe_load(one(case, "ConfigMap")["data"]["litestream.yml"])["dbs"]

    files = ["/data/memory.db", *(f"/data/memory.db.tenants/{it}.db" for it in ("acme", "0"))]
    places = [f"s3://backups/memory{it}" for it in ("", "/tenants/acme", "/tenants/0")]
    assert databases("everything") == [
        {"path": file, "replica": {"url": place, "region": "eu-central-1"}}
        for file, place in zip(files, places, strict=True)
    ]
    restoring = service_pod("everything")["initContainers"]
    assert [container["args"][-1] for container in restoring] == files

    assert databases("litestream") == [{"path": files[0], "replica": {"url": places[0]}}]
    template = one("litestream", "Deployment")["template"]
    assert "checksum/litestream" in template["metadata"]["annotations"]
    for container in containers(template["spec"]):
        mounted = [mount["name"] for mount in container["volumeMounts"]]
        assert mounted == (["data"] if container["name"] == "memory" else ["data", "litestream"])


def test_a_database_has_its_url_of_a_secret_and_nothing_is_kept_outside() -> None:
    secrets = {
        "database": {"name": "memory-database", "key": "url"},
        "autoscaled": {"name": "memory-database-app", "key": "uri"},
    }
    for name in ON_DATABASE:
        pod = service_pod(name)

        assert named(memory(name)["env"], "MEMORY_DATABASE_URL") == {
            "name": "MEMORY_DATABASE_URL", "valueFrom": {"secretKeyRef": secrets[name]},
        }  # fmt: skip
        assert not {"command", "args"} & memory(name).keys()
        assert not re.search("postgres(ql)?://", (GOLDEN / f"{name}.yaml").read_text("utf-8"))
        assert not {"PersistentVolumeClaim", "ConfigMap"} & {it["kind"] for it in rendered()[name]}
        assert [each["name"] for each in pod["containers"]] == ["memory"]
        assert "initContainers" not in pod
        # Large bodies lie there while they are received.
        assert pod["volumes"][0] == {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}
        assert memory(name)["volumeMounts"][0] == {"name": "data", "mountPath": "/data"}


def test_pods_on_a_database_are_many_lie_apart_and_go_one_by_one() -> None:
    for name in ON_DATABASE:
        deployment = one(name, "Deployment")
        assert deployment["strategy"] == {
            "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
        }  # fmt: skip
        hooks = {
            it["metadata"].get("annotations", {}).get("helm.sh/hook") for it in rendered()[name]
        }
        assert hooks == {None, "test"}  # the first new pod migrates the database
        selector = deployment["selector"]
        assert one(name, "PodDisruptionBudget") == {"minAvailable": 1, "selector": selector}
        spread = service_pod(name)["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in spread] == [
            "topology.kubernetes.io/zone", "kubernetes.io/hostname",
        ]  # fmt: skip
        assert all(each["labelSelector"] == selector for each in spread)

    assert one("database", "Deployment")["replicas"] == 3
    assert "replicas" not in one("autoscaled", "Deployment")
    scaler = one("autoscaled", "HorizontalPodAutoscaler")
    target = {"type": "Utilization", "averageUtilization": 80}
    assert scaler["scaleTargetRef"]["name"] == "agentops-memory"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 4)
    assert scaler["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    ]
    # Pods have equal parts of a rate limit, rounded up; with an autoscaler each has the whole.
    assert environment("database")["MEMORY_RATE_LIMIT"] == "34/s"
    assert environment("autoscaled")["MEMORY_RATE_LIMIT"] == "100/s"
