"""The parameters that several operations take."""

from ...http.protocol import Parameter

REF = Parameter(name="memoryRef", help="The ref; `tenant-memory` unless told.")
IN_RUN = Parameter(name="runId", help="A run, whose snapshot is read.")
OF_RUN = Parameter(name="runId", help="A run, whose log tells of it.")
TAG = Parameter(name="tag", help="With this tag alone.")
BUDGET = Parameter(
    name="tokenBudget", kind="count", help="The most code points of all contents together."
)


def limit(usual: int, most: int) -> Parameter:
    """How many."""
    return Parameter(
        name="limit",
        kind="integer",
        help=f"How many, {usual} unless told; at most {most:,}.",
        is_row_count=True,
    )
