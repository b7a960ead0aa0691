"""Forms: read within their bounds, and sent from a page of this service alone."""

import hmac
from datetime import datetime, timedelta
from hashlib import sha256
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request

from ..errors import Denied, Invalid
from ..http.requests import MAX_BODY, whole_body
from ..memory.model.access import Caller
from ..recall.text.normalization import clean

TOKEN = "token"  # noqa: S105 - the name of a field
LASTS = timedelta(hours=12)  # a tab may stay open over a working day
MOST_FIELDS = 500
FOREIGN = "This form was sent from another site; nothing was done."

Form = ImmutableMultiDict[str, str]


async def sent(request: Request) -> Form:
    """The fields of a form, with line breaks as texts have them. Invalid for what is none."""
    body = await whole_body(request, MAX_BODY)
    try:
        pairs = parse_qsl(
            body.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise Invalid(f"A form has at most {MOST_FIELDS} fields.") from None
    return ImmutableMultiDict([(name, with_line_feeds(clean(value))) for name, value in pairs])


def with_line_feeds(text: str) -> str:
    """The text as a text area sends it, but for the carriage returns that it adds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def require_own(request: Request, _: Caller) -> None:
    """Denied for what a browser says that another site has sent."""
    if request.method == "POST" and request.headers.get("sec-fetch-site", "same-origin") not in (
        "same-origin",
        "none",
    ):
        raise Denied(FOREIGN)


def token(request: Request, caller: Caller, secret: bytes, now: datetime) -> str:
    """What a form must hold; valid for this caller until it expires."""
    until = int((now + LASTS).timestamp())
    return f"{until}-{_signature(request, caller, secret, until)}"


def is_own(form: Form, request: Request, caller: Caller, secret: bytes, now: datetime) -> bool:
    """Whether a form has an unexpired token of this caller."""
    until, _, signature = form.get(TOKEN, "").partition("-")
    if not (until.isascii() and until.isdigit()) or len(until) > 12:
        return False
    expected = _signature(request, caller, secret, int(until))
    return (
        hmac.compare_digest(signature.encode(), expected.encode()) and int(until) > now.timestamp()
    )


def _signature(request: Request, caller: Caller, secret: bytes, until: int) -> str:
    # The key that the caller sends is known to each pod, before and after a restart.
    headers = request.headers
    own = headers.get("authorization") or headers.get("x-api-key") or ""
    key = sha256(own.encode()).digest() if caller.key else secret
    return hmac.new(key, f"console {caller.tenant} {until}".encode(), sha256).hexdigest()
