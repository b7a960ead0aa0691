"""`review`: what somebody should look at."""

import click

from ..catalog import command
from ..options import json_option, project_option, target_options
from ..output import ago, print_table, say
from ..print_results import print_json
from ..target import run_on_target

REASONS = ("review_due", "expires_soon", "similar")


@command()
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
        (it.reason, ago(it.at), f"#{it.observation.id}", it.observation.title,
         "" if it.other is None else f"#{it.other.id} {it.other.title} ({it.score:.2f})")
        for it in told.items
    ]  # fmt: skip
    print_table(("REASON", "SINCE", "ID", "TITLE", "LIKE"), rows)
    if told.next:
        say(f"There is more: --before {told.next}")
