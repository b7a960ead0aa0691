"""`limit`, `before` and `after`: whatever is sent, a list answers."""

import pytest

from ..support.files import imported
from ..support.requirements import requirement
from ..support.service import Service, observation

ROWS = 1005
MIDDLE = 503
DEFAULT = [
    "", "0", "-1", "-999", "ten", "1.5", "1e3", "0x10", "१०", "\uff11\uff10", " 5", "%2B5", "5%00",
]  # fmt: skip
DEFAULTS = {
    "/observations/recent?limit={}": 20, "/sessions/recent?limit={}": 5,
    "/search?q=word&limit={}": 10, "/context?project=demo&limit={}": 5,
    f"/timeline?observation_id={MIDDLE}&after=1&before={{}}": 3,
    f"/timeline?observation_id={MIDDLE}&before=1&after={{}}": 3,
}  # fmt: skip


@pytest.mark.slow
@requirement("agentops:parameters:row-counts")
def test_a_number_of_rows_that_is_missing_or_none_is_the_default_and_at_most_a_thousand(
    service: Service,
) -> None:
    _fill(service)

    for path, default in DEFAULTS.items():
        beside = 2 if "timeline" in path else 0
        for text in DEFAULT:
            assert _count(service, path.format(text)) == default + beside, (path, text)
        for text in ("2", "0002"):
            assert _count(service, path.format(text)) == 2 + beside
        if not beside:
            assert _count(service, path.replace("limit={}", "")) == default
            for huge in ("1001", "1000", "99999999999999999999", "9" * 5000):
                assert _count(service, path.format(huge)) == 1000, (path, huge[:9])
    around = f"/timeline?observation_id={MIDDLE}"
    assert _count(service, around) == 7
    assert _count(service, f"{around}&before={'9' * 20}&after={'9' * 5000}") == ROWS
    assert _count(service, "/observations/recent?limit=999") == 999


def _fill(service: Service) -> None:
    imported(
        service,
        [observation(f"word {number}") for number in range(ROWS)],
        [{"id": f"s{number}", "project": "demo"} for number in range(ROWS)],
    )


def _count(service: Service, path: str) -> int:
    answer = service.http.get(path)
    assert answer.status_code == 200, answer.text
    rows = answer.json()
    return len(rows if isinstance(rows, list) else rows["recent_observations"])
