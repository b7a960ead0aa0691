"""The documents that Helm makes of the chart's cases, as tests/golden/chart has them."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from .chart import CASES, GOLDEN

Document = dict[str, Any]


def rendered_cases() -> Mapping[str, list[Document]]:
    """The documents of each case."""
    return {
        name: list(yaml.load_all((GOLDEN / f"{name}.yaml").read_text("utf-8"), yaml.CSafeLoader))
        for name in CASES
    }


def one(documents: list[Document], kind: str) -> Document:
    (only,) = (each for each in documents if each["kind"] == kind)
    return only


def pods(documents: list[Document]) -> Iterator[Document]:
    """The specification of each pod, whatever makes it."""
    for each in documents:
        if each["kind"] == "Pod":
            yield each["spec"]
        elif each["kind"] == "Deployment":
            yield each["spec"]["template"]["spec"]


def service_pod(documents: list[Document]) -> Document:
    """The specification of the service's pod."""
    return dict(one(documents, "Deployment")["spec"]["template"]["spec"])


def memory(documents: list[Document]) -> Document:
    """The container of the service."""
    (only,) = (each for each in service_pod(documents)["containers"] if each["name"] == "memory")
    return dict(only)


def environment(documents: list[Document]) -> dict[str, str]:
    """Its variables, but those of a secret."""
    return {each["name"]: each["value"] for each in memory(documents)["env"] if "value" in each}
