"""How a request comes in: whose it is, whether that caller may, and whether it asks too often."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from ...domain.model.access import Caller, KeyId, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Lets requests in, before anything of them is read but their headers.

    Refuses with Unauthenticated, Denied or TooMany.
    """

    identify: Callable[[Mapping[str, str]], Caller]
    require_rate: Callable[[KeyId | None], None]
    admitted: Callable[[Caller], None]  # what follows is that caller's

    def enter(
        self,
        request: Request,
        role: Role,
        *,
        is_limited: bool = True,
        is_authorization_only: bool = False,
    ) -> None:
        """Let the request in if its caller has at least this role."""
        headers: Mapping[str, str] = request.headers
        if is_authorization_only:
            headers = {"authorization": request.headers.get("authorization", "")}
        identify = partial(self.identify, headers)
        caller = identify()
        if is_limited:
            self.require_rate(caller.key)
        caller.require(role)
        self.admitted(caller)
        request.state.identify = identify


def current_caller(request: Request) -> Caller:
    """Whose request it is, by what the keys say now.

    A body may take long to come, and an answer to be taken: a right that was
    taken away meanwhile holds no more. Refuses with Unauthenticated then.
    """
    caller: Caller = request.state.identify()
    return caller
