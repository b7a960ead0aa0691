"""The values of the Helm chart: each is explained, and is what the schema allows."""

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import agentops_memory
from agentops_memory.settings import ALL_TOOLS, settings

from ..docs.test_docs import DOCUMENTS, blocks, steps
from ..support.chart import (
    CASES,
    CHART,
    ROOT,
    Values,
    merged,
    schema,
    validate,
)
from ..support.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD, manifest
from ..support.samples import for_each

JOB = "agentops-memory"  # that the alerts ask for
NOT_NEEDED = {  # counted where it is not given
    "terminationGracePeriodSeconds",
    "service.publishNotReadyAddresses",
}
NEEDED_LISTS = {"networkPolicy.from", "persistence.accessModes"}
AS_IN_KUBERNETES = {"affinity", "resources", "litestream.resources"}  # one value each

INSTALLING = (["helm", "install"], ["helm", "upgrade"])
INSTALL_SWITCHES = {"--install", "--wait", "--create-namespace", "--reset-then-reuse-values"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`helm install` or `helm upgrade`, as a document has it."""

    text: str
    words: list[str]  # behind these two

    @property
    def is_of_the_chart(self) -> bool:
        """Whether the chart is named where Helm looks for it: after the release."""
        words = [word for word in self.words if word not in INSTALL_SWITCHES]
        return words[1] == str(CHART.relative_to(ROOT))

    @property
    def values(self) -> Values:
        """What `--set` and the files say."""
        words = iter(self.words)
        parts: list[Values] = []
        for word in words:
            if word == "--set":
                parts += [_value(each) for each in next(words).split(",")]
            elif word in {"-f", "--values"}:
                parts.append(yaml.safe_load((ROOT / Path(next(words))).read_text("utf-8")))
        return merged(*parts)


def commands() -> list[Command]:
    """All of the documents."""
    found = []
    for document in DOCUMENTS:
        for block in blocks(document, "console-cluster"):
            for step in steps(block):
                # A variable of the shell is a name of the operator's.
                text = re.sub(r"\$(\w+)", lambda found: found[1].lower(), step.command)
                words = shlex.split(text)
                if words[:2] in INSTALLING:
                    found.append(Command(text=text, words=words[2:]))
    return found


def _value(assignment: str) -> dict[str, Any]:
    """One of `--set`: numbers and booleans are what they look like, as Helm takes them."""
    path, _, text = assignment.partition("=")
    value: Any = yaml.safe_load(text) if text in {"true", "false"} or text.isdecimal() else text
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


def defaults() -> dict[str, Any]:
    """What values.yaml says."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return values


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


@pytest.fixture(scope="module")
def validator() -> Any:
    """What says whether values are allowed."""
    jsonschema.Draft7Validator.check_schema(schema())
    return jsonschema.Draft7Validator(schema())


def values_of(part: object, name: str = "") -> Iterator[str]:
    """The full names of the values in values.yaml."""
    if not isinstance(part, dict) or not part or name in AS_IN_KUBERNETES:
        yield name
        return
    for key, below in part.items():
        yield from values_of(below, f"{name}.{key}".lstrip("."))


def values_allowed(part: dict[str, Any], name: str = "") -> Iterator[str]:
    """The full names of the values in the schema, every map of which is closed."""
    part = schema()["definitions"][part["$ref"].split("/")[-1]] if "$ref" in part else part
    if "properties" not in part or name in {*AS_IN_KUBERNETES, "settings"}:
        yield name
        return
    assert part["additionalProperties"] is False, name
    for key, below in part["properties"].items():
        yield from values_allowed(below, f"{name}.{key}".lstrip("."))


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))

    assert chart["version"] == chart["appVersion"] == agentops_memory.__version__
    assert chart["kubeVersion"] == ">=1.28.0-0"


def test_the_schema_allows_the_defaults_and_every_case(validator: Any) -> None:
    for values in CASES.values():
        validator.validate(merged(defaults(), values))


def test_the_schema_names_every_value_and_no_other() -> None:
    assert set(values_allowed(schema())) - {"global"} == set(values_of(defaults()))


@pytest.mark.slow
def test_a_value_that_is_taken_away_is_refused_where_the_chart_needs_it(validator: Any) -> None:
    for name in values_of(defaults()):
        values = part = merged(defaults())
        *path, last = name.split(".")
        for each in path:
            part[each] = part = merged(part[each])
        if isinstance(part.pop(last), dict | list) and name not in NEEDED_LISTS:
            continue

        assert validator.is_valid(values) is (name in NOT_NEEDED), name


@pytest.mark.slow
@for_each(
    "name, taken, refused",
    [
        ("MEMORY_TOOLS", ["default", "all", ", ".join(ALL_TOOLS)],
         ["mem_forget", "mem_save mem_get", "mem_save,"]),
        ("MEMORY_INDEX_CACHE", ["0", "64MiB", "1048576"], ["-1", "00", "1.5MiB", "none"]),
        ("MEMORY_RATE_LIMIT", ["1/s", "1000000/h"], ["1000001/s", "0/s", "5"]),
        ("MEMORY_ALLOWED_ORIGINS", ["https://console.example, http://localhost:3000"],
         ["https://console.example/", "*", "http://*"]),
    ],
)  # fmt: skip
def test_the_schema_allows_of_a_setting_what_the_service_takes(
    validator: Any, name: str, taken: list[str], refused: list[str]
) -> None:
    for text in taken:
        settings({name: text})
        validator.validate(merged(defaults(), {"settings": {name: text}}))
    for text in refused:
        assert not validator.is_valid(merged(defaults(), {"settings": {name: text}})), text


def test_every_value_is_explained_where_it_stands_and_in_the_documents() -> None:
    explained, values = documented(), defaults()
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| `[a-zA-Z.]+` \| `", line)]

    # A comment may stand above the group that a value is in.
    known = explained.keys()
    alone = [it for it in values_of(values) if not {it, it.rpartition(".")[0]} & known]
    assert alone == []
    for row, (name, comment) in zip(rows, explained.items(), strict=True):
        default = json.dumps(reduce(getitem, name.split("."), values))
        assert row == f"| `{name}` | `{default}` | {comment} |"


@pytest.mark.slow
def test_a_command_that_installs_gives_values_that_exist(validator: Any) -> None:
    assert len(commands()) >= 3
    for command in commands():
        assert command.is_of_the_chart, command.text
        validator.validate(merged(defaults(), command.values))


def test_what_the_documents_say_in_yaml_is_a_manifest_or_values(validator: Any) -> None:
    pages = (ROOT / "docs" / name for name in ("deployment.md", "postgresql.md"))
    for block in itertools.chain.from_iterable(blocks(page, "yaml") for page in pages):
        document = yaml.safe_load(block)
        if "scrape_configs" in document:
            assert [job["job_name"] for job in document["scrape_configs"]] == [JOB]
        elif "env" in document:  # of the container of another program
            pod = {"containers": [{"name": "program", "image": "program", **document}]}
            metadata = {"name": "program"}
            validate({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}, "1.28")
        elif document.get("kind") == "Cluster":  # a kind of CloudNativePG
            assert document["spec"]["instances"] == 3
            assert document["spec"]["postgresql"]["synchronous"]["number"] == 1
        elif "kind" in document:
            validate(document, "1.28")
        else:
            validator.validate(merged(defaults(), document))


def test_a_job_of_the_documents_is_a_manifest_of_this_version() -> None:
    pages = "".join(it.read_text("utf-8") for it in (ROOT / "docs").glob("*.md"))
    images = set()
    for path in sorted((ROOT / "deploy" / "jobs").iterdir()):
        document = manifest(path)
        validate(document, "1.28")
        spec = (
            document["spec"]["template"]["spec"] if document["kind"] == "Job" else document["spec"]
        )
        images |= {it["image"] for it in spec["containers"]}
        if path.name != "go-back.yaml":  # which takes the user from the image of Litestream
            unless = {"fsGroupChangePolicy": "OnRootMismatch"}
            assert unless | spec["securityContext"] == RESTRICTED_POD
            assert [it["securityContext"] for it in spec["containers"]] == [RESTRICTED_CONTAINER]
        assert f"-f deploy/jobs/{path.name}" in pages

    litestream = defaults()["litestream"]["image"]
    assert images == {
        f"registry.example/agentops-memory:{agentops_memory.__version__}",
        f"{litestream['repository']}:{litestream['tag']}",
    }


def test_a_freed_volume_waits_for_the_claim_that_the_guide_makes() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    (reference,) = re.findall(r'"claimRef": (\{[^}]*\})', page)
    claims = [
        claim["metadata"]
        for block in blocks(ROOT / "docs" / "deployment.md", "yaml")
        if (claim := yaml.safe_load(block)).get("kind") == "PersistentVolumeClaim"
    ]

    assert json.loads(reference) == {**claims[0], "uid": None, "resourceVersion": None}


def test_no_pod_writes_the_file_that_the_way_back_replaces() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    back = page[page.index("### The way back") : page.index("deploy/jobs/way-back.yaml")]
    chosen = set(re.findall(r"app\.kubernetes\.io/[a-z]+=[a-z]+", back))

    assert back.index("--replicas=0") < back.index("wait --for=delete pod")
    assert chosen == {"app.kubernetes.io/instance=memory", "app.kubernetes.io/component=memory"}
