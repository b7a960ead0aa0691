"""Parameters that several routes of OpenIntent take."""

from dataclasses import replace

from ..http.protocol import Parameter
from .queries import MOST_SHOWN

PREFIX = "/api/v1"

MATCH = Parameter(name="If-Match", help='The version that it must have, such as "3".')
MUST_MATCH = replace(MATCH, required=True)
TAG = {"ETag": "The version, as If-Match takes it."}
LIMIT = Parameter(
    name="limit",
    kind="count",
    help=f"How many, 100 unless told; at most {MOST_SHOWN:,}.",
    is_row_count=True,
)
PAGE = (LIMIT, Parameter(name="offset", kind="integer", help="After how many; 0 unless told."))
EVENTS = (
    Parameter(name="event_type", help="Of this type alone."),
    Parameter(name="since", kind="instant", help="Later than this."),
    Parameter(name="after", kind="integer", help="After this `sequence`, oldest first."),
    LIMIT,
)
