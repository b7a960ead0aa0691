"""The commands that save, find and review memories, for people."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from agentops_memory_client.contract.models import Context, Found, Observation
from agentops_memory_client.contract.service import MemoryService

from ...memory.model.space import project_name
from ...settings.parsing import retention
from ..catalog import command
from ..invocation import now
from ..options import (
    MemoryId,
    excluded_option,
    here_option,
    id_argument,
    ids,
    json_option,
    limit_option,
    parsed_by,
    project_option,
    scope_name_option,
    tag_option,
    target_options,
    type_option,
    types,
)
from ..output import (
    ago,
    counted,
    cut,
    is_piped,
    lines,
    one_line,
    print_table,
    read_piped,
    say,
    show,
)
from ..print_results import (
    Elsewhere,
    elsewhere,
    ids_of,
    print_context,
    print_found,
    print_history,
    print_json,
    print_observations,
    print_saved,
    say_nothing,
)
from ..target import run_on_target, taken_from

LONGEST_TITLE = 60  # characters that a title has which is taken from its text

_json = json_option("Print the JSON of the REST API.")
_explain = click.option("--explain", is_flag=True, help="Tell why each was found.")


@command()
@click.argument("title", metavar="[TITLE] CONTENT")
@click.argument("content", required=False, metavar="")
@here_option
@click.option("--type", default="discovery", show_default=True, shell_complete=types,
              help="What it is, such as decision, bugfix, config.")  # fmt: skip
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated.")
@click.option("--topic-key", metavar="KEY", help="What it is about: the same key is updated.")
@click.option("--scope", metavar="NAME", help="global is seen from every project.")
@click.option("--session", "session_id", metavar="ID",
              help="In which session. [default: cli:PROJECT:DATE]")  # fmt: skip
@click.option("--ttl", metavar="TIME", callback=parsed_by(retention),
              help="How long it is true, such as 30d.")  # fmt: skip
@click.option("--pinned", is_flag=True, help="First in every context of the project.")
@click.option("--supersedes", multiple=True, metavar="ID", type=MemoryId(), shell_complete=ids,
              help="The memory that it replaces; may be repeated.")  # fmt: skip
@target_options
@_json
def save(title: str, content: str | None, project: str, as_json: bool, **given: Any) -> None:
    """Save a memory: a text alone, or a title and its content.

    The project is that of the repository you are in, and the session is today's.
    CONTENT is read from standard input if it is - or comes through a pipe. The same
    topic key updates the memory that has it; the same text again within
    MEMORY_DEDUPE_WINDOW is counted, and not stored twice.
    """
    if not project:
        raise click.UsageError("A memory belongs to a project: --project or MEMORY_PROJECT.")
    title, text = _titled(title, content)
    where, session = taken_from(given), given.pop("session_id") or _session(project)
    given |= {"project": project, "title": title, "content": text}
    given["pinned"] = given["pinned"] or None
    saved = run_on_target(where, lambda it: it.save(session_id=session, **given), may_make=True)
    source = click.get_current_context().get_parameter_source("project")
    is_found = source is ParameterSource.DEFAULT  # which the user has not said, and may not expect
    where_it_is = f" in the project {project_name(project)}" if is_found else ""
    print_saved(saved, where_it_is, as_json=as_json)


def _session(project: str) -> str:
    return f"cli:{project_name(project)}:{now():%Y-%m-%d}"


def _titled(title: str, content: str | None) -> tuple[str, str]:
    """The title and the content; a text alone is its own title as far as that may go."""
    if content == "-" or (content is None and is_piped()):
        piped = read_piped()
        if piped or content == "-":
            return title, piped
    if content is not None:
        return title, content
    first, _, rest = title.strip().partition("\n")
    if rest.strip():
        return first.strip(), rest.strip()
    return cut(first.rstrip("."), LONGEST_TITLE), first


@command("list")
@here_option
@type_option
@excluded_option
@tag_option
@scope_name_option
@limit_option(default=20)
@click.option("--before", metavar="ID", type=MemoryId(), help="Only those older than this one.")
@target_options
@_json
def list_(limit: int, as_json: bool, **given: Any) -> None:
    """List the memories of the project, newest first."""
    where, project = taken_from(given), given["project"]

    async def listed(memories: MemoryService) -> tuple[list[Observation], Elsewhere | None]:
        found = await memories.recent(limit=limit + 1, **given)  # one more tells that there is more
        return found, None if found else await elsewhere(memories, project)

    found, other = run_on_target(where, listed)
    shown = found[:limit]
    if as_json:
        print_json(shown)
    else:
        print_observations(shown)
    if other:
        say_nothing("There is no memory", given, other)
    elif len(found) > limit:
        say(f"There is more: --before {shown[-1].id}")


@command("show")
@id_argument
@target_options
@_json
def show_(memory: int, as_json: bool, **where: str | None) -> None:
    """Show the memory ID in full."""
    found = run_on_target(where, lambda memories: memories.get(memory))
    if as_json:
        print_json(found)
        return
    show(one_line(f"#{found.id}  [{found.type}] {found.title}"), bold=True)
    for name, value in _facts(found):
        show(f"{name:<13}{one_line(value)}", indent=2, dim=True)
    click.echo()
    for line in lines(found.content):
        click.echo(line)


def _facts(it: Observation) -> Iterator[tuple[str, str]]:
    yield "project", it.project if it.scope == "project" else f"{it.project} ({it.scope})"
    yield "session", it.session_id
    revisions = f", revision {it.revision_count}" if it.revision_count > 1 else ""
    yield "saved", f"{ago(it.created_at)}{revisions}"
    for name, at in (
        ("changed", it.updated_at if it.updated_at != it.created_at else None),
        ("confirmed", it.confirmed_at), ("review", it.review_at), ("expires", it.expires_at),
    ):  # fmt: skip
        if at:
            yield name, ago(at)
    for name, value in (
        ("topic key", it.topic_key), ("tags", ", ".join(it.tags)), ("pinned", it.pinned and "yes"),
        ("supersedes", ids_of(it.supersedes)), ("replaced by", ids_of(it.superseded_by)),
    ):  # fmt: skip
        if value:
            yield name, value


@command()
@click.argument("words", nargs=-1, required=True)
@here_option
@type_option
@excluded_option
@tag_option
@scope_name_option
@limit_option(default=10)
@click.option("--superseded", is_flag=True, help="Also memories that another one replaced.")
@_explain
@target_options
@_json
def search(words: Sequence[str], as_json: bool, **given: Any) -> None:
    """Find memories by WORDS, best first: of the project, and global ones."""
    where = taken_from(given)

    async def searched(memories: MemoryService) -> tuple[Found, Elsewhere | None]:
        found = await memories.search(" ".join(words), **given)
        if found.hits:
            return found, None
        replaced = await memories.search(" ".join(words), **given | {"superseded": True})
        return found, await elsewhere(memories, given["project"], len(replaced.hits))

    found, other = run_on_target(where, searched)
    print_found(found, as_json=as_json)
    if other:
        say_nothing("Nothing was found", given, other)


@command()
@click.argument("prompt", nargs=-1)
@here_option
@excluded_option
@tag_option
@scope_name_option
@limit_option(default=5)
@_explain
@target_options
@_json
def context(prompt: Sequence[str], as_json: bool, **given: Any) -> None:
    """Preview the context that an agent of the project would get with PROMPT.

    Without a prompt it has the newest memories; without a project global ones alone.
    """
    where, query = taken_from(given), " ".join(prompt) or None

    async def reminded(memories: MemoryService) -> tuple[Context, Elsewhere | None]:
        found = await memories.context(query=query, **given)
        is_empty = not (found.observations or found.summaries)
        return found, await elsewhere(memories, given["project"]) if is_empty else None

    found, other = run_on_target(where, reminded)
    print_context(found, as_json=as_json)
    if other:
        say_nothing("An agent would be reminded of nothing", given, other)


@command()
@id_argument
@click.option("--before", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option("--after", type=click.IntRange(1, 1000), default=3, show_default=True)
@target_options
@_json
def timeline(memory: int, before: int, after: int, as_json: bool, **where: str | None) -> None:
    """Show what was saved in the project before and after the memory ID."""
    entries = run_on_target(where, lambda it: it.timeline(memory, before=before, after=after))
    if as_json:
        print_json(entries)
        return
    rows = [
        (">" if it.id == memory else "", f"#{it.id}", ago(it.created_at), it.type, it.title)
        for it in entries
    ]
    print_table(("", "ID", "SAVED", "TYPE", "TITLE"), rows)


@command()
@id_argument
@target_options
@_json
def history(memory: int, as_json: bool, **where: str | None) -> None:
    """Show the revisions of the memory ID, newest first, each with what it changed."""
    revisions = run_on_target(where, lambda memories: memories.history(memory))
    print_history(revisions, as_json=as_json)


@command()
@project_option
@limit_option(default=20)
@click.option("--before", metavar="ID", help="Only those older than this session.")
@target_options
@_json
def sessions(
    project: str | None, limit: int, before: str | None, as_json: bool, **where: str | None
) -> None:
    """Show the sessions of the project, or of all, newest first."""
    found = run_on_target(
        where, lambda memories: memories.sessions(project, limit=limit, before=before)
    )
    if as_json:
        print_json(found)
        return
    rows = [
        (it.id, it.project, ago(it.started_at), "ended" if it.ended_at else "open",
         it.message_count, it.summary or "")
        for it in found
    ]  # fmt: skip
    print_table(("ID", "PROJECT", "STARTED", "STATE", "MESSAGES", "SUMMARY"), rows)


@command()
@project_option
@click.option("--storage", is_flag=True, help="Show what the files of the tenants are made of.")
@target_options
@_json
def stats(project: str | None, storage: bool, as_json: bool, **where: str | None) -> None:
    """Show how much is stored, in the project or in all.

    With --storage, what the files are made of, how much is kept for a time, and
    what the next sweep would remove by the settings of this environment.
    """
    if storage:
        # Not at the top: it needs what reads a file, which a service's memories do not.
        from .storage import print_storage  # noqa: PLC0415

        print_storage(where, as_json=as_json)
        return
    totals = run_on_target(where, lambda memories: memories.stats(project))
    if as_json:
        print_json(totals)
        return
    observations = counted(totals.total_observations, "observation")
    place = f" in the project {project_name(project)}" if project else ""
    show(one_line(f"{observations} and {counted(totals.total_sessions, 'session')}{place}"))
    for name in totals.projects if not project else ():
        show(one_line(name), indent=2)
