"""`python -m benchmarks.agents`: what MCP adds to the same question to the REST API."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import cycle, islice

from . import corpus
from .client import Client, Request, get, post
from .figures import Figure, show
from .measures import times_in_turns
from .plan import Bench, Subject, parser, prepared
from .process import running

ROUNDS = 600
WARMING = 50  # rounds before the first that counts

Round = dict[str, Callable[[], object]]


def main() -> None:
    """Seed, start, ask in turns, print."""
    with prepared(parser("benchmarks.agents", __doc__).parse_args()) as made:
        show(_figures(made))


def _figures(made: Bench) -> Iterator[Figure]:
    size = made.plan.few
    with (
        running(made.files.of(size)) as service,
        closing(Client(service.port)) as client,
    ):
        rounds = _rounds(made, Subject(size=size, service=service), client)
        times_in_turns(islice(rounds, WARMING))
        times = times_in_turns(islice(rounds, ROUNDS))
    for tool, path in (("mem_context", "/context"), ("mem_search", "/search")):
        rest, agent = times[path], times[tool]
        yield Figure(
            what=f"{tool} against GET {path}: p50",
            value=agent.p50 / rest.p50,
            beside=f"{agent} against {rest}; {agent.p50 - rest.p50:.2f} ms more",
        )


def _rounds(made: Bench, asked: Subject, client: Client) -> Iterator[Round]:
    """The same prompt through both, of the same project."""
    for number, prompt in enumerate(cycle(corpus.prompts(made.seed + 1, made.plan.reads))):
        project = asked.project(number)
        questions = {
            "/context": get("/context", query=prompt, project=project, explain="true", limit=5),
            "/search": get("/search", q=prompt, project=project, limit=10),
            "mem_context": _call(project, "mem_context", query=prompt, limit=5),
            "mem_search": _call(project, "mem_search", query=prompt, limit=10),
        }
        yield {
            name: partial(_checked, client, name, request) for name, request in questions.items()
        }


def _checked(client: Client, name: str, request: Request) -> None:
    body = client.ask(request)
    if name.startswith("mem_") and json.loads(body)["result"]["isError"]:
        raise SystemExit(f"{name}: {body.decode()}")


def _call(project: str, tool: str, **arguments: object) -> Request:
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return post(f"/mcp/{project}", message)


if __name__ == "__main__":
    main()
