"""A key file that is lost opens the service to nobody, until somebody says that it may be open."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from agentops_memory.errors import Refusal
from agentops_memory.memory.access import TenantId
from agentops_memory.operations.files.keys import AuditFile, KeysLost, record

from ..support.archives import at
from ..support.callers import OPERATOR, audit, calling, key_file, made_key
from ..support.process import ANY_PORT, run
from ..support.service import START, serving

Loss = Callable[[Path], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A service's database with a key; no service runs."""
    path = tmp_path / "memory.db"
    made_key(path)
    with serving(path):
        pass
    return path


def keys(path: Path) -> Path:
    return Path(f"{path}.keys")


def assert_closed(path: Path, auth: str = "") -> None:
    """No service starts, and it says what to do."""
    with pytest.raises(KeysLost) as refused, serving(path, MEMORY_AUTH=auth):
        pass
    for said in (str(keys(path)), "Put it back", "keys create", "keys reset --open"):
        assert said in str(refused.value)


def all_revoked(path: Path) -> None:
    for key in key_file(path).ring().keys.values():
        key_file(path).revoke(key.id, at=START, by=OPERATOR)
    keys(path).unlink()


def of_another_tenant(path: Path) -> None:
    key_file(path).reset(at=START, by=OPERATOR)
    made_key(path, tenant="acme")
    key_file(path).revoke_all(TenantId("acme"), at=START, by=OPERATOR)
    keys(path).unlink()


def with_the_file_of_a_reset(path: Path) -> None:
    key_file(path).reset(at=START, by=OPERATOR)
    of_a_reset = keys(path).read_bytes()
    made_key(path)
    keys(path).write_bytes(of_a_reset)


def with_a_trimmed_audit(path: Path) -> None:
    keys(path).unlink()
    assert AuditFile(Path(f"{path}.audit"), lambda: START).trim(START + timedelta(days=1)) == 1
    assert audit(path) == []


def with_the_audit(path: Path) -> None:
    keys(path).unlink()
    Path(f"{path}.audit").unlink()


def without_a_note(path: Path) -> None:
    """As it is where the keys were made by a program that has noted nothing."""
    keys(path).unlink()
    Path(f"{path}.closed").unlink()
    record(Path(f"{path}.audit"), START, "project.erased", {"key": None}, project="shop")


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        all_revoked, of_another_tenant, with_the_file_of_a_reset, with_a_trimmed_audit,
        with_the_audit, without_a_note,
    ],
)  # fmt: skip
def test_however_they_were_lost_no_service_starts(path: Path, loss: Loss) -> None:
    loss(path)

    assert_closed(path)


@pytest.mark.slow
def test_no_setting_opens_it_and_the_file_put_back_lets_in_its_keys_alone(path: Path) -> None:
    kept = keys(path).read_bytes()
    keys(path).unlink()
    for auth in ("", "none", "keys"):
        assert_closed(path, auth)
    done = run("serve", variables={"MEMORY_DB_PATH": str(path), "MEMORY_AUTH": "none", **ANY_PORT})
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"agentops-memory: Keys were created, but the key file {keys(path)}"
    )

    keys(path).write_bytes(kept)
    for key in (None, *key_file(path).ring().keys):
        if key is not None:
            key_file(path).revoke(key, at=START, by=OPERATOR)
        with serving(path, MEMORY_AUTH="none") as service:
            assert service.http.get("/stats").status_code == 401


def test_keys_that_were_made_elsewhere_are_remembered_by_the_service(tmp_path: Path) -> None:
    elsewhere, path = tmp_path / "elsewhere.db", tmp_path / "memory.db"
    token, mounted = made_key(elsewhere), keys(elsewhere)
    mount = partial(serving, path, MEMORY_KEYS_FILE=str(mounted), MEMORY_AUTH="none")
    with mount() as service, calling(service, token) as http:
        assert http.get("/stats").status_code == 200
    mounted.unlink()

    with pytest.raises(KeysLost), mount():
        pass


@pytest.mark.slow
def test_a_reset_says_that_it_may_be_open_and_is_audited(path: Path) -> None:
    keys(path).unlink()

    at(path).say("keys", "reset", "--open")

    with serving(path) as service:
        assert service.http.get("/stats").status_code == 200
    assert [line["action"] for line in audit(path)] == ["key.created", "keys.reset"]
    keys(path).unlink()
    with serving(path) as service:  # and it stays so without the file of the reset
        assert service.http.get("/stats").status_code == 200


def test_a_new_key_closes_it_to_all_others(path: Path) -> None:
    keys(path).unlink()

    done = at(path).run("keys", "create", "--name", "new", "--role", "admin")

    assert "The keys created earlier are lost" in done.stderr
    assert [line["action"] for line in audit(path)] == ["key.created", "key.created"]
    with serving(path) as service, calling(service, done.stdout.strip()) as http:
        assert http.get("/stats").status_code == 200
        assert service.http.get("/stats").status_code == 401


def test_a_service_whose_key_file_vanishes_lets_nobody_in_until_there_are_keys(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    at(path).say("tenants", "create", "acme")
    with serving(path):
        pass
    assert not Path(f"{path}.closed").exists()
    with serving(path, MEMORY_AUTH="none") as service:
        assert service.http.get("/stats").status_code == 200
        with calling(service, made_key(path)) as http:
            assert http.get("/stats").status_code == 200
            keys(path).unlink()
            assert [http.get("/stats").status_code for _ in range(2)] == [503, 503]
            assert service.http.get("/stats").status_code == 503
        with calling(service, made_key(path)) as http:
            assert http.get("/stats").status_code == 200
            assert service.http.get("/stats").status_code == 401


def test_an_audit_that_cannot_be_read_opens_nothing(path: Path) -> None:
    with_the_audit(path)
    Path(f"{path}.closed").unlink()
    Path(f"{path}.audit").mkdir()

    with pytest.raises(Refusal, match=r"The audit file .* cannot be read"), serving(path):
        pass
