"""Answers of the Anthropic dialect: JSON with an id of its own, which the client can tell."""

from collections.abc import Mapping
from uuid import uuid4

from pydantic import BaseModel
from starlette.responses import Response

JSON = "application/json"
REDACTED = "X-Redacted"
REQUEST_ID = "request-id"
NONE: Mapping[str, str] = {}


def json(model: BaseModel, *, redacted: int = 0) -> Response:
    """One model; and how many secrets were kept out of what was written."""
    headers = {REQUEST_ID: new_request_id()}
    if redacted:
        headers[REDACTED] = str(redacted)
    return Response(model.model_dump_json(), headers=headers, media_type=JSON)


def new_request_id() -> str:
    """An id that no other request has."""
    return f"req_{uuid4().hex}"
