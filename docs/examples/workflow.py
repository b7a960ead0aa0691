"""A host that runs a workflow of three nodes, and keeps what each has done in memory.

    python docs/examples/workflow.py RUN FILE

It judges the lines of a file, and knows what earlier runs have judged. Kill it
whenever you like and start it again with the same run: it goes on where it was.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from agentops_memory_client import Conflict, MemoryClient
from agentops_memory_client.openwop import MemoryAdapter

REF = "mem://reviews"
FILE = Path(sys.argv[2])

Done = Mapping[str, str]  # what the nodes before have said


def recall(memory: MemoryAdapter, _: Done) -> str:
    """What the last runs have judged: as of the start of this one, however often it is resumed."""
    judged = memory.list(REF, tag="node:judge", limit=3, token_budget=1000)
    return "; ".join(entry.content for entry in judged) or "nothing"


def read(_: MemoryAdapter, __: Done) -> str:
    lines = FILE.read_text("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if "error" in line)[:10_000] or "no errors"


def judge(_: MemoryAdapter, done: Done) -> str:
    errors = done["read"].count("error:")
    return f"{FILE.name} has {errors} errors; known before: {done['recall']}"


NODES: Mapping[str, Callable[[MemoryAdapter, Done], str]] = {
    "recall": recall,
    "read": read,
    "judge": judge,
}


def main(run_id: str) -> None:
    done: dict[str, str] = {}
    with (
        MemoryClient.from_environment() as client,
        client.openwop.run(run_id, workflow_id="review", memory_refs=[REF]) as run,
    ):
        if token := os.environ.get("REVIEW_TOKEN"):
            run.secret("review-token", token)  # by each process: the service never stores it
        for node, work in NODES.items():
            # What this run has done is read as it is now: its snapshot is from before.
            entry = client.openwop.get(REF, f"{run_id}/{node}")
            if entry is None:
                print(f"{node} begins", flush=True)
                text = work(run.memory, done)
                tags = [f"node:{node}"]
                entry = run.put(REF, text, id=f"{run_id}/{node}", tags=tags, node_id=node)
            print(f"{node} is done: {entry.content}", flush=True)
            done[node] = entry.content
    print(f"run {run_id} is completed", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Conflict as refusal:
        if refusal.code != "run_conflict":
            raise
        print(f"run {sys.argv[1]} has ended already")
