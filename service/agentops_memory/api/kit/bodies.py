"""Bodies of one dialect: read by a model with faults in its own words, and written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response

from ...domain.errors import Invalid
from ...domain.memories.idempotency import IdempotentRequest
from .http import idempotency_of, json_object

JSON = "application/json"
REDACTED = "X-Redacted"
NONE: Mapping[str, str] = {}

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """How a dialect takes bodies: exactly, up to its limit, and `null` is absent."""

    limit: int  # bytes
    refusal: Callable[[Sequence[ErrorDetails]], Invalid]  # what is said of faults

    async def read(self, request: Request, model: type[Model], *, empty: bool = False) -> Model:
        """The body as the model has it; refused as the dialect refuses if it is none."""
        given = await json_object(request, limit=self.limit, empty=empty, exact=True)
        try:
            return model.model_validate({k: v for k, v in given.items() if v is not None})
        except ValidationError as error:
            raise self.refusal(error.errors(include_url=False)) from None

    async def idempotency(self, request: Request) -> IdempotentRequest | None:
        """The request under its idempotency key, once its body was read; None without a key."""
        return await idempotency_of(request, limit=self.limit)


def json(
    model: BaseModel, status: int = 200, *, redacted: int = 0, headers: Mapping[str, str] = NONE
) -> Response:
    """One model; and how many secrets were kept out of what was written."""
    every = {**headers, REDACTED: str(redacted)} if redacted else headers
    return Response(model.model_dump_json(), status, every, media_type=JSON)
