"""A tenant that stores as much as it may is refused more, and keeps what it has."""

import json
from pathlib import Path

import pytest

from ..support.callers import calling, made_key
from ..support.engines import is_postgresql, quota
from ..support.files import assert_index_is_whole
from ..support.process import run
from ..support.service import Service, observation, serving

FULL = {"error": "The tenant has reached its storage quota; nothing was stored."}


def fill(service: Service) -> list[int]:
    """Save until there is no room, and answer the ids."""
    ids: list[int] = []
    for number in range(1000):
        answer = service.http.post("/observations", json=observation(f"{number} " * 2000))
        if answer.status_code != 201:
            assert (answer.status_code, answer.json()) == (507, FULL)
            return ids
        ids.append(answer.json()["id"])
    pytest.fail("there was room without end")


@pytest.mark.slow
def test_what_would_add_to_a_full_tenant_is_refused_and_the_rest_goes_on(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 1024)) as service:
        rows = [observation(f"{number} " * 5000) for number in range(200)]
        answer = service.http.post("/import", content=json.dumps({"observations": rows}))
        assert (answer.status_code, answer.json()) == (507, FULL)
        assert service.http.get("/stats").json()["total_observations"] == 0
        ids = fill(service)
        assert len(ids) > 10
        exported = service.http.get("/export").json()

        for answer in [
            service.http.patch(f"/observations/{ids[0]}", json={"title": "new"}),
            service.http.post(f"/observations/{ids[0]}/restore", json={"revision": 1}),
            service.http.post("/import", json={"observations": [observation("pear")]}),
        ]:
            assert (answer.status_code, answer.json()) == (507, FULL)
        assert service.http.get("/export").json()["observations"] == exported["observations"]
        assert service.http.get("/search?q=7").json()
        session = {"id": "later", "project": "demo"}
        assert service.http.post("/sessions", json=session).status_code == 201
        assert service.http.post("/sessions/later/end").status_code == 200
        assert service.http.delete(f"/observations/{ids[0]}").status_code == 204
        for id_ in ids[:5]:
            service.http.delete(f"/observations/{id_}?hard=true")
        if is_postgresql():  # where a table stays as large as it is until it is written anew
            assert service.http.post("/observations", json=observation("pear")).status_code == 507
            run("tenants", "rewrite", "default", "--db", str(service.path))
        assert service.http.post("/observations", json=observation("pear")).status_code == 201
        fill(service)
        with calling(service, made_key(path, tenant="acme")) as client:  # another has room
            assert client.post("/observations", json=observation("apple")).status_code == 201
    assert_index_is_whole(path)
