"""A revision has a row once there is a change after it, and each is counted all the same."""

from ..support.engines import rows
from ..support.openintent_agents import Agent
from ..support.openintent_agents import ok as done
from ..support.service import Service
from ..support.stores import entry, redact, store, update, versions

STORED = "SELECT count(*) FROM revisions"


def test_an_entry_of_an_agent_has_no_rows(service: Service) -> None:
    ada = Agent(service.http)

    done(ada.patch(ada.make(), value={"colour": "red"}))

    assert rows(service.path, STORED) == [(0,)]


def test_a_memory_has_rows_once_it_was_changed_and_counts_as_one_revision_until_then(
    service: Service,
) -> None:
    for number in range(3):
        service.save(f"apple {number}", project="going")
    assert rows(service.path, STORED) == [(0,)]
    assert service.http.patch("/observations/1", json={"content": "pear"}).is_success
    assert rows(service.path, STORED) == [(2,)]
    plan = service.http.delete("/projects/going?hard=true&dry_run=true").json()

    receipt = service.http.delete("/projects/going?hard=true").json()

    assert (plan["revisions"], receipt["observations"], receipt["revisions"]) == (4, 3, 4)


def test_text_that_a_redacted_version_has_lost_does_not_come_back(service: Service) -> None:
    home = store(service.http)
    made = entry(service.http, home, "a", "zanzibar")
    (version,) = versions(service.http, home)
    redact(service.http, home, version)

    update(service.http, home, made, "open")

    texts = rows(service.path, "SELECT number, content FROM revisions ORDER BY number")
    assert texts == [(1, ""), (2, None)]
