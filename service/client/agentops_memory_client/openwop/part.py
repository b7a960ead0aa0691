"""A part of the client of OpenWOP: methods that each send one question."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..contract.call import Call, T, shown_as
from ..transport.exchange import Exchange

P = ParamSpec("P")


class AsyncPart:
    """What has a way to the service."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange


Part = TypeVar("Part", bound=AsyncPart)


def sent(
    question: Callable[Concatenate[Part, P], Call[T]],
) -> Callable[Concatenate[Part, P], Coroutine[Any, Any, T]]:
    """The method that sends what the question makes."""

    async def send(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._exchange.send(question(self, *args, **kwargs))

    return shown_as(question, send, beside=1)
