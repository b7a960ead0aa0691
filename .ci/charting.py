"""What `.ci/chart-test` asks of the chart, with every combination of values and two Helms.

What kustomize builds of deploy/ is held against the same schemas.
"""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import yaml
from tests.deploy.test_chart_values import INSTALL_SWITCHES, commands
from tests.support.chart import (
    CASES,
    CHART,
    GOLDEN,
    NAMESPACE,
    OF_DATABASES,
    RELEASE,
    ROOT,
    SWITCHES,
    Values,
    merged,
    validate,
)

OF_FILES = {"keys", "takeover", "backup", "litestream"}  # of which a database has none
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


def combinations() -> Iterator[Values]:
    """The values of every combination of switches that a service can have."""
    for count in range(len(SWITCHES) + 1):
        for chosen in itertools.combinations(SWITCHES, count):
            excluded = OF_FILES if "database" in chosen else OF_DATABASES
            if not excluded.intersection(chosen):
                yield merged(*(SWITCHES[name] for name in chosen))


NOT_RENDERED = INSTALL_SWITCHES - {"--create-namespace"}  # `helm template` does not know them


VERSIONS = [f"1.{minor}" for minor in range(28, 36)]
PLACE = (RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-")
FOREIGN = {"ServiceMonitor", "PrometheusRule"}  # kinds that Kubernetes itself does not know


def main(helms: list[str], kubectl: str, *, renew: bool) -> None:
    """Everything in turn; the first fault ends it."""
    if renew:
        _renew(helms)
    documents = [document for each in _rendered(helms, _all()) for document in _documents(each)]
    _lint(helms, _all())
    _compare(helms)
    _validate([*documents, *_built(kubectl)])
    _refuse(helms)
    _run_the_documents(helms)


def _all() -> list[Values]:
    return [*CASES.values(), *ACCEPTED, *combinations()]


def _run(*line: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
    """A program, with values on its standard input."""
    given = None if values is None else json.dumps(values)
    return subprocess.run(line, input=given, cwd=ROOT, capture_output=True, text=True, check=False)


def _output(*line: str, values: Values | None = None) -> str:
    """What a program prints that must succeed."""
    done = _run(*line, values=values)
    if done.returncode:
        sys.exit(f"{' '.join(line)}: {values}: {done.stdout}{done.stderr}")
    return done.stdout


def _template(helm: str) -> tuple[str, ...]:
    return (helm, "template", *PLACE)


def _render(helm: str, values: Values) -> str:
    return _sorted(_output(*_template(helm), values=values))


def _sorted(rendered: str) -> str:
    """The documents by the files that they come from: Helm 3 and 4 may order them differently."""
    parts = re.split(r"^---\n", rendered, flags=re.MULTILINE)
    return "".join(f"---\n{part.strip()}\n" for part in sorted(parts) if part.strip())


def _rendered(helms: list[str], cases: list[Values]) -> list[str]:
    with ThreadPoolExecutor() as threads:
        each = [list(threads.map(_render, repeat(helm), cases)) for helm in helms]
    for outputs in zip(cases, *each, strict=True):
        if len(set(outputs[1:])) > 1:
            sys.exit(f"the Helms differ: {outputs[0]}")
    print(f"{len(cases)} combinations of values, the same from {len(helms)} Helms")
    return each[0]


def _lint(helms: list[str], cases: list[Values]) -> None:
    def lint(helm: str, values: Values) -> str:
        return _output(
            helm, "lint", "--strict", "--quiet", str(CHART), "--values", "-", values=values
        )

    with ThreadPoolExecutor() as threads:
        for helm in helms:
            list(threads.map(lint, repeat(helm), cases))
    print(f"{len(cases)} combinations of values are clean")


def _compare(helms: list[str]) -> None:
    for name, values in CASES.items():
        if _render(helms[0], values) != (GOLDEN / f"{name}.yaml").read_text("utf-8"):
            sys.exit(f"{name}.yaml differs from what is rendered; .ci/chart-test --renew, and look")
        if _notes(helms[-1], values) != (GOLDEN / f"{name}.txt").read_text("utf-8"):
            sys.exit(f"{name}.txt differs from what is told; .ci/chart-test --renew, and look")
    if stray := {path.stem for path in GOLDEN.iterdir()} - CASES.keys():
        sys.exit(f"no case has the files {stray}")
    print(f"{2 * len(CASES)} files as expected")


def _renew(helms: list[str]) -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, values in CASES.items():
        (GOLDEN / f"{name}.yaml").write_text(_render(helms[0], values), "utf-8")
        (GOLDEN / f"{name}.txt").write_text(_notes(helms[-1], values), "utf-8")


def _notes(helm: str, values: Values) -> str:
    """What an operator is told; Helm 4 says it without a cluster."""
    told = _output(helm, "install", *PLACE, "--dry-run=client", values=values)
    return told.partition("NOTES:\n")[2].strip() + "\n"


def _documents(rendered: str) -> Iterator[str]:
    return (json.dumps(each, sort_keys=True) for each in yaml.load_all(rendered, yaml.CSafeLoader))


def _built(kubectl: str) -> Iterator[str]:
    """The documents of each folder of deploy/ that kustomize can build."""
    folders = [
        path.parent
        for path in sorted((ROOT / "deploy").rglob("kustomization.yaml"))
        if yaml.safe_load(path.read_text("utf-8"))["kind"] == "Kustomization"
    ]
    for folder in folders:
        done = _run(kubectl, "kustomize", str(folder))
        if done.returncode or done.stderr:
            sys.exit(f"{folder}: {done.stderr}")
        yield from _documents(done.stdout)
    print(f"{len(folders)} folders of deploy/ are built")


def _validate(documents: list[str]) -> None:
    distinct = [json.loads(document) for document in sorted(set(documents))]
    known = [document for document in distinct if document["kind"] not in FOREIGN]
    for version in VERSIONS:
        for document in known:
            validate(document, version)
    print(f"{len(known)} distinct documents in {len(VERSIONS)} versions of Kubernetes")


def _refuse(helms: list[str]) -> None:
    for helm in helms:
        for values, because in REFUSED:
            done = _run(*_template(helm), values=values)
            said = done.stderr.replace("/", ".")
            if done.returncode == 0 or not re.search(because, said):
                sys.exit(f"{helm}: {values}: {done.stderr or 'it is rendered'}")
    print(f"{len(REFUSED)} refusals")


def _run_the_documents(helms: list[str]) -> None:
    for helm in helms:
        for command in (found := commands()):
            words = [word for word in command.words if word not in NOT_RENDERED]
            _output(helm, "template", *words, "--skip-tests")
    print(f"{len(found)} commands of the documents")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    *programs, last = [each for each in arguments if each != "--renew"]
    main(programs, last, renew="--renew" in arguments)
