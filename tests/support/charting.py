"""What `.ci/chart-test` asks of the chart, with every combination of values and two Helms.

What kustomize builds of deploy/ is held against the same schemas.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import yaml

from ..docs.test_docs import DOCUMENTS, blocks, steps
from .chart import (
    ACCEPTED,
    CASES,
    CHART,
    GOLDEN,
    NAMESPACE,
    REFUSED,
    RELEASE,
    ROOT,
    Values,
    combinations,
    merged,
    validate,
)

INSTALLING = (["helm", "install"], ["helm", "upgrade"])
SWITCHES = {"--install", "--wait", "--create-namespace", "--reset-then-reuse-values"}
NOT_RENDERED = SWITCHES - {"--create-namespace"}  # `helm template` does not know them


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`helm install` or `helm upgrade`, as a document has it."""

    text: str
    words: list[str]  # behind these two

    @property
    def is_of_the_chart(self) -> bool:
        """Whether the chart is named where Helm looks for it: after the release."""
        words = [word for word in self.words if word not in SWITCHES]
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
    """All of them."""
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
