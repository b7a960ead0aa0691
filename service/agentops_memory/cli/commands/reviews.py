"""`review` and `confirm`: what somebody should look at, and that it still holds."""

import click

from ...recall.text.instants import rendered
from ..options import json_option, project_option, target_options
from ..output import one_line, print_table, say, show
from ..print_results import print_json
from ..target import run_on_target

REASONS = ("review_due", "expires_soon", "similar")


@click.command()
@project_option
@click.option("--reason", type=click.Choice(REASONS), help="Only for this reason.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most."
)
@click.option("--before", metavar="NEXT", help="What follows there, as a list names it at its end.")
@target_options
@json_option("Print the JSON of the REST API.")
def review(
    project: str | None, reason: str | None, limit: int, before: str | None, as_json: bool,
    **where: str | None,
) -> None:  # fmt: skip
    """Show which memories somebody should look at, the newest reason first."""
    told = run_on_target(
        where, lambda it: it.review(project, reason=reason, limit=limit, before=before)
    )
    if as_json:
        print_json(told)
        return
    rows = [
        (it.reason, rendered(it.at), f"#{it.observation.id}", it.observation.title,
         "" if it.other is None else f"#{it.other.id} {it.other.title} ({it.score:.2f})")
        for it in told.items
    ]  # fmt: skip
    print_table(("REASON", "SINCE", "ID", "TITLE", "LIKE"), rows)
    if told.next:
        say(f"There is more: --before {told.next}")


@click.command()
@click.argument("memory", metavar="ID", type=click.IntRange(min=1))
@target_options
@json_option("Print the JSON of the REST API.")
def confirm(memory: int, as_json: bool, **where: str | None) -> None:
    """Say that the memory ID still holds."""
    confirmed = run_on_target(where, lambda memories: memories.confirm(memory))
    if as_json:
        print_json(confirmed)
    else:
        show(one_line(f"Confirmed #{confirmed.id}: {confirmed.title}"))
