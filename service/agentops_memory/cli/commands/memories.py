"""The commands that save, find and review memories, for people."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from ...memory.model.space import project_name
from ...recall.text.instants import rendered
from ...settings.parsing import retention
from ..options import json_option, parsed_by, project_option, target_options
from ..output import counted, is_terminal, one_line, print_table, show
from ..print_results import print_context, print_found, print_history, print_json, print_saved
from ..target import run_on_target, taken_from

MOST_READ = 1024 * 1024  # bytes of standard input; the longest content has fewer

_json = json_option("Print the JSON of the REST API.")
_explain = click.option("--explain", is_flag=True, help="Tell why each was found.")
_excluded = click.option(
    "--exclude-type", "exclude_types", multiple=True, metavar="TYPE",
    help="Not this type; may be repeated.",
)  # fmt: skip
_tag = click.option("--tag", metavar="TAG", help="Only memories with this tag.")
_scope = click.option(
    "--scope", metavar="NAME", help="Only this scope; global means those of all projects."
)
_id = click.argument("memory", metavar="ID", type=click.IntRange(min=1))


def _limit(default: int) -> Callable[..., Any]:
    return click.option(
        "--limit",
        type=click.IntRange(1, 1000),
        default=default,
        show_default=True,
        help="How many at most.",
    )


@click.command()
@click.argument("title")
@click.argument("content", required=False)
@project_option
@click.option("--type", default="discovery", show_default=True, help="What it is.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated.")
@click.option("--topic-key", metavar="KEY", help="What it is about: the same key is updated.")
@click.option("--scope", metavar="NAME", help="global is seen from every project.")
@click.option(
    "--session", "session_id", metavar="ID", help="In which session. [default: cli:PROJECT]"
)
@click.option("--ttl", metavar="TIME", callback=parsed_by(retention),
              help="How long it holds, such as 30d.")  # fmt: skip
@click.option("--pinned", is_flag=True, help="First in every context of the project.")
@click.option("--supersedes", multiple=True, metavar="ID", type=click.IntRange(min=1),
              help="The memory that it replaces; may be repeated.")  # fmt: skip
@target_options
@_json
def save(content: str | None, project: str | None, as_json: bool, **given: Any) -> None:
    """Save a memory. CONTENT is read from standard input if it is - or left out.

    The same topic key updates the memory that has it; the same words again
    within MEMORY_DEDUPE_WINDOW are counted, and not stored twice.
    """
    if not project:
        raise click.UsageError("A memory belongs to a project: --project or MEMORY_PROJECT.")
    text = _read() if content in (None, "-") else content
    where, session = taken_from(given), given.pop("session_id") or f"cli:{project_name(project)}"
    given |= {"project": project, "content": text or "", "pinned": given["pinned"] or None}
    saved = run_on_target(where, lambda it: it.save(session_id=session, **given), may_make=True)
    print_saved(saved, as_json=as_json)


@click.command()
@click.argument("words", nargs=-1, required=True)
@project_option
@click.option("--type", metavar="TYPE", help="Only this type.")
@_excluded
@_tag
@_scope
@_limit(10)
@click.option("--superseded", is_flag=True, help="Also those that another replaced.")
@_explain
@target_options
@_json
def search(words: Sequence[str], as_json: bool, **given: Any) -> None:
    """Find memories by WORDS, best first: of the project and global ones, or of all projects."""
    where = taken_from(given)
    found = run_on_target(where, lambda memories: memories.search(" ".join(words), **given))
    print_found(found, as_json=as_json)


@click.command()
@click.argument("prompt", nargs=-1)
@project_option
@_excluded
@_tag
@_scope
@_limit(5)
@_explain
@target_options
@_json
def context(prompt: Sequence[str], as_json: bool, **given: Any) -> None:
    """Show what an agent of the project would be reminded of before PROMPT.

    Without a prompt these are the newest; without a project global memories alone.
    """
    where, query = taken_from(given), " ".join(prompt) or None
    reminded = run_on_target(where, lambda memories: memories.context(query=query, **given))
    print_context(reminded, as_json=as_json)


@click.command()
@_id
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
        (">" if it.id == memory else "", f"#{it.id}", rendered(it.created_at), it.type, it.title)
        for it in entries
    ]
    print_table(("", "ID", "SAVED", "TYPE", "TITLE"), rows)


@click.command()
@_id
@target_options
@_json
def history(memory: int, as_json: bool, **where: str | None) -> None:
    """Show the revisions of the memory ID, newest first, each with what it changed."""
    revisions = run_on_target(where, lambda memories: memories.history(memory))
    print_history(revisions, as_json=as_json)


@click.command()
@project_option
@_limit(20)
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
        (it.id, it.project, rendered(it.started_at), "ended" if it.ended_at else "open",
         it.message_count, it.summary or "")
        for it in found
    ]  # fmt: skip
    print_table(("ID", "PROJECT", "STARTED", "STATE", "MESSAGES", "SUMMARY"), rows)


@click.command()
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


def _read() -> str:
    if sys.stdin is None or is_terminal(sys.stdin):
        raise click.UsageError("CONTENT is missing; - reads it from standard input.")
    content: bytes = sys.stdin.buffer.read(MOST_READ)
    return content.decode(errors="replace").removesuffix("\n").removesuffix("\r")
