"""The Helm chart as it is rendered: `.ci/chart-test` compares these files with two Helms."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from agentops_memory.settings.settings import VARIABLES, settings

from ..support.chart import CASES, CHART, GOLDEN, ON_DATABASE, ON_FILES, schema, validate
from ..support.chart_documents import (
    Document,
    environment,
    memory,
    one,
    pods,
    rendered_cases,
    service_pod,
)
from ..support.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD
from ..support.service import serving

FOREIGN = {"ServiceMonitor"}  # a kind of the Prometheus operator
KNOWN = {variable.name for variable in VARIABLES}
SHUTDOWN = 15 + 2  # seconds: what was accepted, then traces
OPEN = {"default", "takeover", "litestream", "stopped", "database"}  # to everybody
STAYS = {"helm.sh/resource-policy": "keep"}


@pytest.fixture(scope="module")
def rendered() -> Mapping[str, list[Document]]:
    """The documents of each case."""
    return rendered_cases()


def all_of(rendered: Mapping[str, list[Document]], kind: str) -> list[Document]:
    return [each for documents in rendered.values() for each in documents if each["kind"] == kind]


def containers(pod: Document) -> list[Document]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_every_case_has_its_file() -> None:
    files = {path.name for path in GOLDEN.iterdir()}

    assert files == {f"{name}.{kind}" for name in CASES for kind in ("yaml", "txt")}


def test_the_notes_tell_the_next_step_and_what_is_open_or_lost() -> None:
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
def test_what_is_rendered_follows_the_schemas_of_kubernetes(
    rendered: Mapping[str, list[Document]],
) -> None:
    distinct = {json.dumps(each) for documents in rendered.values() for each in documents}

    for document in map(json.loads, distinct):
        if document["kind"] not in FOREIGN:
            validate(document, "1.28")


def test_every_pod_is_restricted(rendered: Mapping[str, list[Document]]) -> None:
    every = [pod for documents in rendered.values() for pod in pods(documents)]

    assert len(every) == 2 * len(CASES)  # the service's, and that of `helm test`
    for pod in every:
        assert pod["securityContext"] == RESTRICTED_POD
        assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_every_container_is_restricted(rendered: Mapping[str, list[Document]]) -> None:
    every = [
        container
        for documents in rendered.values()
        for pod in pods(documents)
        for container in containers(pod)
    ]

    names = {"memory", "ready", "restore", "restore-1", "restore-2", "litestream"}
    assert {each["name"] for each in every} == names
    for container in every:
        assert container["securityContext"] == RESTRICTED_CONTAINER
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_no_pod_has_a_volume_of_its_node(rendered: Mapping[str, list[Document]]) -> None:
    kinds = {
        kind
        for documents in rendered.values()
        for pod in pods(documents)
        for volume in pod.get("volumes", [])
        for kind in volume.keys() - {"name"}
    }

    assert kinds == {"persistentVolumeClaim", "secret", "configMap", "emptyDir"}


def test_two_pods_never_hold_the_volume(rendered: Mapping[str, list[Document]]) -> None:
    deployments = {name: one(rendered[name], "Deployment")["spec"] for name in ON_FILES}
    replicas = {name: deployment["replicas"] for name, deployment in deployments.items()}

    assert replicas == {**dict.fromkeys(ON_FILES, 1), "stopped": 0}
    for deployment in deployments.values():
        assert deployment["strategy"] == {"type": "Recreate"}
    modes = [claim["spec"]["accessModes"] for claim in all_of(rendered, "PersistentVolumeClaim")]
    assert {mode for (mode,) in modes} == {"ReadWriteOnce", "ReadWriteOncePod"}


def test_the_service_has_the_name_and_the_port_that_agents_know(
    rendered: Mapping[str, list[Document]],
) -> None:
    for name, documents in rendered.items():
        service = one(documents, "Service")
        template = one(documents, "Deployment")["spec"]["template"]

        assert service["metadata"]["name"] == "agentops-memory"
        assert service["spec"]["ports"] == [{"name": "http", "port": 7437, "targetPort": "http"}]
        assert service["spec"]["publishNotReadyAddresses"] is (name in ON_FILES)
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        assert memory(documents)["ports"] == [{"name": "http", "containerPort": 7437}]


def test_the_service_chooses_its_pod_whose_probes_and_end_have_their_time(
    rendered: Mapping[str, list[Document]],
) -> None:
    for documents in rendered.values():
        selector = one(documents, "Deployment")["spec"]["selector"]["matchLabels"]
        test = one(documents, "Pod")["metadata"]["labels"]

        assert selector == one(documents, "Service")["spec"]["selector"]
        assert not selector.items() <= test.items()

    for documents in rendered.values():
        container = memory(documents)
        for name, path in PROBES.items():
            assert container[name]["httpGet"] == {"path": path, "port": "http"}
            assert container[name]["timeoutSeconds"] == 5

    for documents in rendered.values():
        pod = service_pod(documents)
        drain = settings(environment(documents)).drain.total_seconds()
        pause = memory(documents).get("lifecycle", {}).get("preStop", {}).get("exec", {})

        assert pause.get("command", ["sleep", "0"]) == ["sleep", f"{drain:.0f}"]
        assert pod["terminationGracePeriodSeconds"] >= 2 * drain + SHUTDOWN + 3


def test_the_claim_outlives_the_release(rendered: Mapping[str, list[Document]]) -> None:
    claims = all_of(rendered, "PersistentVolumeClaim")

    # None for another's claim, none without persistence, one for the backups of everything.
    names = [claim["metadata"]["name"] for claim in claims]
    assert names.count("agentops-memory") == len(ON_FILES) - 2
    assert names.count("agentops-memory-backup") == len(names) - len(ON_FILES) + 2 == 1
    assert all(claim["metadata"]["annotations"].items() >= STAYS.items() for claim in claims)


def test_the_claim_of_the_original_is_taken_over(rendered: Mapping[str, list[Document]]) -> None:
    (pod, _) = pods(sorted(rendered["takeover"], key=lambda each: str(each["kind"])))

    assert pod["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-of-the-original"}}
    ]


PROBES = {"startupProbe": "/health/startup", "livenessProbe": "/health/live"}
PROBES |= {"readinessProbe": "/health/ready"}


def test_a_start_may_take_an_hour_and_a_dead_process_ninety_seconds(
    rendered: Mapping[str, list[Document]],
) -> None:
    container = memory(rendered["default"])
    patience = {
        name: container[name]["periodSeconds"] * container[name]["failureThreshold"]
        for name in PROBES
    }

    assert patience == {"startupProbe": 3600, "livenessProbe": 90, "readinessProbe": 30}
    assert one(rendered["default"], "Deployment")["spec"]["progressDeadlineSeconds"] == 4200
    assert memory(rendered["everything"])["startupProbe"]["failureThreshold"] == 1441  # 7201 s


def test_what_is_asked_over_http_exists(
    rendered: Mapping[str, list[Document]], tmp_path: Path
) -> None:
    paths = {*PROBES.values()}
    for monitor in all_of(rendered, "ServiceMonitor"):
        paths |= {endpoint["path"] for endpoint in monitor["spec"]["endpoints"]}
    for test in all_of(rendered, "Pod"):
        (script,) = test["spec"]["containers"][0]["args"]
        paths |= set(re.findall(r"agentops-memory:7437(/[\w/]+)", script))

    assert paths == {*PROBES.values(), "/metrics"}
    with serving(tmp_path / "memory.db") as service:
        assert {path: service.http.get(path).status_code for path in paths} == dict.fromkeys(
            paths, 200
        )


def test_the_service_understands_its_environment(rendered: Mapping[str, list[Document]]) -> None:
    for name, documents in rendered.items():
        given = environment(documents)
        configured = settings(given)

        assert given.keys() - {"OTEL_SERVICE_NAME"} <= KNOWN
        assert ("MEMORY_DB_PATH" in given) is (name in ON_FILES)
        assert (configured.listen.host, configured.listen.port) == ("", 7437)
    configured = settings(environment(rendered["everything"]))
    assert configured.db_path == Path("/data/memory.db")
    assert configured.tenant_quota == 1048576
    assert configured.auto_save is False


def test_every_setting_has_a_value(rendered: Mapping[str, list[Document]]) -> None:
    own = environment(rendered["everything"]).keys() - {"OTEL_SERVICE_NAME"}
    given = schema()["properties"]["settings"]["properties"].keys()
    database = environment(rendered["autoscaled"]).keys() - own - given

    assert own | given | database | {"MEMORY_DATABASE_URL"} == KNOWN
    assert database == {"MEMORY_DATABASE_POOL", "MEMORY_DATABASE_RETENTION"}
    assert own & given == {"MEMORY_TENANT_QUOTA", "MEMORY_AUTO_SAVE"}  # of the case itself


def test_keys_are_read_only_and_follow_a_change_of_their_secret(
    rendered: Mapping[str, list[Document]],
) -> None:
    documents = rendered["keys"]
    pod = service_pod(documents)
    (mount,) = (each for each in memory(documents)["volumeMounts"] if each["name"] == "keys")
    (volume,) = (each for each in pod["volumes"] if each["name"] == "keys")

    assert mount == {"name": "keys", "mountPath": "/etc/agentops-memory/keys", "readOnly": True}
    assert volume["secret"] == {"secretName": "agentops-memory-keys", "defaultMode": 0o440}
    assert environment(documents)["MEMORY_KEYS_FILE"] == "/etc/agentops-memory/keys/keys"
    assert environment(documents)["MEMORY_AUTH"] == "keys"


def test_the_policy_lets_in_whom_it_names_and_out_what_is_needed(
    rendered: Mapping[str, list[Document]],
) -> None:
    policy = one(rendered["default"], "NetworkPolicy")["spec"]
    (ingress,) = policy["ingress"]
    ports = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    everything = one(rendered["everything"], "NetworkPolicy")["spec"]["egress"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert ingress["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert ingress["from"][:-1] == [{"namespaceSelector": {}}]
    assert ports == [53, 53]
    assert [port["port"] for rule in everything for port in rule["ports"]] == [
        53, 53, 4318, 9000, 8443,
    ]  # fmt: skip


def test_litestream_is_told_of_each_tenant(rendered: Mapping[str, list[Document]]) -> None:
    told = yaml.safe_load(one(rendered["everything"], "ConfigMap")["data"]["litestream.yml"])
    pod = service_pod(rendered["everything"])
    files = ["/data/memory.db", *(f"/data/memory.db.tenants/{it}.db" for it in ("acme", "0"))]
    places = [f"s3://backups/memory{it}" for it in ("", "/tenants/acme", "/tenants/0")]

    assert told["dbs"] == [
        {"path": file, "replica": {"url": place, "region": "eu-central-1"}}
        for file, place in zip(files, places, strict=True)
    ]
    assert [container["args"][-1] for container in pod["initContainers"]] == files


def test_litestream_is_told_of_the_database(rendered: Mapping[str, list[Document]]) -> None:
    told = yaml.safe_load(one(rendered["litestream"], "ConfigMap")["data"]["litestream.yml"])
    template = one(rendered["litestream"], "Deployment")["spec"]["template"]

    assert told["dbs"] == [{"path": "/data/memory.db", "replica": {"url": "s3://backups/memory"}}]
    assert "checksum/litestream" in template["metadata"]["annotations"]
    for container in containers(template["spec"]):
        mounted = [mount["name"] for mount in container["volumeMounts"]]
        assert mounted == (["data"] if container["name"] == "memory" else ["data", "litestream"])
