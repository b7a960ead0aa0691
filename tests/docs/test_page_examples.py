"""The examples of the page can be sent as they stand."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from agentops_memory.http.docs_page.page import ADDRESS, IDS

from ..support.service import Service, serving
from ..support.shown import Shown
from .test_openapi import operations

# What takes something away, in an order in which each finds it; it comes after the others.
LAST = [
    "delete_entry", "anthropic_delete_memory", "redact_version", "anthropic_redact_version",
    "archive_store", "anthropic_archive_store", "delete_store", "anthropic_delete_store",
    "delete_observation", "delete_project", "get_erasure", "openintent_delete_entry",
    "openintent_delete_batch", "openwop_delete", "openwop_archive_proposal",
    "openwop_forget", "openwop_get_erasure",
]  # fmt: skip
# A proposal is moved to one end: the next move needs another. A compaction takes two entries,
# and leaves none that a commitment could be of.
ANEW = {
    "openwop_reject_proposal": "openwop_create_proposal",
    "openwop_archive_proposal": "openwop_create_proposal",
    "openwop_compact": "openwop_put",
    "openwop_distill": "openwop_put",
    "openwop_create_commitment": "openwop_put",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        yield running


@pytest.fixture(scope="module")
def shown(service: Service) -> Shown:
    return Shown(service.http.get("/docs").text)


def test_each_example_works_as_it_stands(service: Service, shown: Shown) -> None:
    document = service.http.get("/openapi.json").json()
    known: dict[str, str] = {}
    for group in document["tags"]:
        for operation in sorted(_of(document, group["name"]), key=_turn):
            if anew := ANEW.get(operation["operationId"]):
                (command,) = shown.sections[anew]["Example"]["pre"]
                known |= _ids(_sent(service, command))
            (command,) = shown.sections[operation["operationId"]]["Example"]["pre"]
            answer = _sent(service, _renamed(command, known))

            promised = [status for status in operation["responses"] if status < "300"]
            assert str(answer.status_code) in promised, command
            known |= _ids(answer)


def _of(document: dict[str, Any], group: str) -> list[dict[str, Any]]:
    return [each for each in operations(document).values() if each["tags"] == [group]]


def _turn(operation: dict[str, Any]) -> int:
    name = operation["operationId"]
    return LAST.index(name) if name in LAST else -1


def _renamed(command: str, known: dict[str, str]) -> str:
    for collection, id_ in known.items():
        command = command.replace(quote(IDS[collection], safe=""), quote(id_, safe=""))
    return command


def _ids(answer: httpx.Response) -> dict[str, str]:
    """The ids of an answer, by what they are of: the last ones, which in lists are the oldest."""
    if answer.request.url.path.endswith("/docs"):
        return {}
    kinds = {
        "memory_stores": "memstore", "memories": "mem", "versions": "memver", "memory": "mem",
        "intents": "intent", "tasks": "task", "coordinators": "coord", "entries": "grant",
        "runs": "run", "passes": "run", "commitments": "cmt",
    }  # fmt: skip
    found = {
        collection: re.findall(rf"\b{kind}_[0-9a-f]{{32}}", answer.text)
        for collection, kind in kinds.items()
    }
    found["proposals"] = re.findall(r'"id":"(prop_[0-9a-f]+)"', answer.text)
    found["artifacts"] = re.findall(r"installed:[a-z-]+:prop_[0-9a-f]+:[0-9a-f]+", answer.text)
    found["observations"] = re.findall(r'^{"id":(\d+),"action":', answer.text)
    found["erasures"] = [
        *answer.headers.get_list("x-erasure-id"),
        *re.findall(r'"erasureId":"([^"]+)"', answer.text),
    ]
    return {collection: ids[-1] for collection, ids in found.items() if ids}


def _sent(service: Service, command: str) -> httpx.Response:
    """The answer to a curl command, read as a shell reads it."""
    curl, silent, *words = shlex.split(command.replace("\\\n", ""))
    assert (curl, silent) == ("curl", "-s")
    method = "POST" if "-d" in words else "GET"
    if words[0] == "-X":
        _, method, *words = words
    url, *options = words
    said = dict(zip(options[::2], options[1::2], strict=True))
    assert said.keys() <= {"-H", "-d"}
    pairs = zip(options[::2], options[1::2], strict=True)
    headers = dict(value.split(": ", 1) for option, value in pairs if option == "-H")
    return service.http.request(
        method,
        url.replace(ADDRESS, service.url),
        content=said.get("-d"),
        headers=headers,
    )


@pytest.mark.parametrize("operation", ["add_observation", "fetch_context"])
def test_an_example_is_a_command_of_a_shell(service: Service, shown: Shown, operation: str) -> None:
    (command,) = shown.sections[operation]["Example"]["pre"]
    script = command.replace(ADDRESS, service.url.removeprefix("http://"))

    done = subprocess.run(
        ["sh", "-ec", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert "error" not in json.loads(done.stdout)
    assert done.stderr == ""
