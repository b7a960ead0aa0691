"""Idempotency keys: what a handler gives to a write, so that a request is done once."""

from starlette.requests import Request

from ...domain.errors import Invalid
from ...domain.memories.idempotency import IdempotentRequest, idempotency
from .endpoint import admission
from .http import KEY_HEADERS, MAX_BODY, body_digest


async def idempotency_of(request: Request, *, limit: int = MAX_BODY) -> IdempotentRequest | None:
    """The request under its idempotency key; None if it has no key.

    Asked for after the body was read: what is left of it is read here, up to so
    many bytes. Invalid for what is no key, and for several keys.
    """
    values = (value for name in KEY_HEADERS for value in request.headers.getlist(name))
    keys = {value.strip(" \t") for value in values}
    if not keys:
        return None
    if len(keys) > 1:
        raise Invalid("A request has one idempotency key; this one has several.")
    admitted = admission(request)
    path, query = request.scope["path"].encode(), request.scope["query_string"]
    admitted.idempotency = idempotency(
        admitted.caller(),
        keys.pop(),
        admitted.status,
        request.method.encode(),
        path,
        query,
        await body_digest(request, limit),
    )
    return admitted.idempotency
