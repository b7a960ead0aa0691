"""What was found, or would be injected, for people; with the reasons if they are wanted."""

from collections.abc import Iterator, Sequence

import click

from agentops_memory_client.contract.models import Context, Explanation, Found

from .json_output import print_json
from .output import counted, lines, one_line, show
from .print_explanation import reasons, understood
from .service_files import say

INDENT = 4


def print_found(found: Found, *, as_json: bool) -> None:
    """The hits of a search, each with the beginning of its content."""
    if as_json:
        print_json(found)
    else:
        for hit in found:
            key = f"  ({hit.topic_key})" if hit.topic_key else ""
            show(one_line(f"#{hit.id}  [{hit.type}] {hit.title}{key}"), bold=True)
            show(one_line(hit.content), INDENT)
            _explain(hit.explain)
        _understand(found.explanation)
        if not found.hits:
            say("Nothing was found.")
    _tell_omitted(found.omitted)


def print_context(context: Context, *, as_json: bool) -> None:
    """The blocks that an agent runtime puts before a prompt, and why each line is in them."""
    if as_json:
        print_json(context)
    else:
        summaries = [f"- {summary}" for summary in context.summaries]
        memories = [f"- [{it.type}] {it.title}: {it.content}" for it in context.observations]
        for line in (*_block("sessions", summaries), *_block("context", memories)):
            click.echo(line)
        for memory in context.observations if context.explanation else ():
            show(one_line(f"[{memory.type}] {memory.title}"), bold=True)
            _explain(memory.explain)
        _understand(context.explanation)
        if not (summaries or memories):
            say("An agent would be reminded of nothing.")
    _tell_omitted(context.omitted)


def _block(name: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield f"<memory:{name}>"
        for entry in entries:
            yield from lines(entry)
        yield f"</memory:{name}>"


def _explain(explanation: Explanation | None) -> None:
    for sentence in reasons(explanation) if explanation else ():
        show(one_line(sentence), INDENT, dim=True)


def _understand(explanation: Explanation | None) -> None:
    for sentence in understood(explanation) if explanation else ():
        show(one_line(sentence), dim=True)


def _tell_omitted(count: int) -> None:
    if count:
        say(f"{counted(count, 'more', 'more')} had no room in one answer.")
