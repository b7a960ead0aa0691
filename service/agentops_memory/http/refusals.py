"""What a refusal is over HTTP: one table of codes, and what a dialect says otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import Refusal, TooMany

STATUS: Mapping[str, int] = {
    "invalid_input": 400,
    "validation_error": 400,
    "unauthenticated": 401,
    "denied": 403,
    "not_found": 404,
    "no_path": 404,
    "no_method": 405,
    "too_slow": 408,
    "already_done": 409,
    "already_exists": 409,
    "archived": 409,
    "constraint_violation": 409,
    "idempotency_key_mismatch": 409,
    "memory_changed": 409,
    "memory_id_conflict": 409,
    "nothing_to_compact": 409,
    "nothing_to_distill": 409,
    "pass_not_undoable": 409,
    "path_taken": 409,
    "proposal_state_conflict": 409,
    "run_conflict": 409,
    "run_secrets_lost": 409,
    "run_terminal": 409,
    "stale": 409,
    "still_current": 409,
    "task_finished": 409,
    "too_many_commitments": 409,
    "too_large": 413,
    "artifact_invalid": 422,
    "invalid_from_seq": 422,
    "memory_too_large": 422,
    "replay_memory_snapshot_unavailable": 422,
    "token_budget_exceeded": 422,
    "version_required": 428,
    "over_capacity": 429,
    "too_many": 429,
    "failed": 500,
    "db_locked": 503,
    "storage_full": 503,
    "timed_out": 503,
    "unavailable": 503,
    "over_quota": 507,
}
HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": "1"},
}
INVALID, FAILED = "invalid_request_error", "api_error"
TYPES: Mapping[int, str] = {  # of the errors of dialects that name a type; FAILED beyond
    400: INVALID,
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: INVALID,
    408: INVALID,
    409: "conflict_error",
    429: "rate_limit_error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The statuses, types and headers of one dialect's refusals; empty where it has its own."""

    statuses: Mapping[str, int] = field(default_factory=dict)  # by code
    types: Mapping[str, str] = field(default_factory=dict)  # by code
    headers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # by status

    def status(self, code: str) -> int:
        return self.statuses.get(code) or STATUS[code]

    def type(self, code: str) -> str:
        return self.types.get(code) or TYPES.get(self.status(code), FAILED)

    def headers_of(self, refusal: Refusal) -> dict[str, str]:
        if isinstance(refusal, TooMany):
            return {"Retry-After": str(refusal.retry_after)}
        status = self.status(refusal.code)
        return {**HEADERS.get(status, {}), **self.headers.get(status, {})}


class TooLarge(Refusal):
    """The body is over its limit."""

    code = "too_large"


class TooSlow(Refusal):
    """The body stopped coming."""

    code = "too_slow"


class NoPath(Refusal):
    """The service has nothing at this path."""

    code = "no_path"

    def __init__(self, sentence: str = "There is nothing at this path.") -> None:
        super().__init__(sentence)


class NoMethod(Refusal):
    """The path does not take this method."""

    code = "no_method"

    def __init__(self) -> None:
        super().__init__("This path does not take this method.")


class Failed(Refusal):
    """The service did not do what it should; the log has the reason."""

    code = "failed"

    def __init__(self) -> None:
        super().__init__("The service failed; the log has the reason.")


class Gone(Refusal):
    """The client left before its body was complete."""

    code = "invalid_input"
