"""Releases of the package: the newest, and an older one that speaks otherwise."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import anthropic
import pytest

from .. import MACHINE
from ..support import anthropic_scenario as scenario
from ..support.anthropic_sdk import STORES
from ..support.callers import calling, made_key
from ..support.requirements import requirement
from ..support.service import Service, serving

OLDER = "0.125.0"
TIMEOUT = 120.0  # seconds for an index that is slow


@pytest.fixture(scope="module")
def older(request: pytest.FixtureRequest) -> Path:
    """The folder of an older release; installed once, into pytest's cache, as two do not fit."""
    cache: pytest.Cache = request.config.cache
    folder = cache.mkdir("anthropic") / f"{OLDER}-py{sys.version_info.minor}"
    with Path(f"{folder}.lock").open("w") as lock:  # other workers may want it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    half = Path(f"{folder}.half")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-compile", "--upgrade", "--target", str(half), f"anthropic=={OLDER}"],
        env=MACHINE, capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(f"anthropic {OLDER} cannot be installed from the package index:\n{done.stderr}")
    half.rename(folder)


@pytest.fixture
def key(service: Service) -> str:
    return made_key(service.path)


@requirement(
    "anthropic:sdk:newest-release", "anthropic:sdk:async", "anthropic:sdk:keys",
    "anthropic:sdk:base-url",
)  # fmt: skip
def test_the_newest_release_does_every_call(service: Service, key: str) -> None:
    scenario.main(anthropic.__version__, f"{service.url}/anthropic", key)


@pytest.mark.heavy
@requirement("anthropic:sdk:older-release", "anthropic:sdk:ignored")
def test_an_older_release_does_every_call(service: Service, key: str, older: Path) -> None:
    done = subprocess.run(
        [sys.executable, scenario.__file__, OLDER, f"{service.url}/anthropic", key],
        env={**os.environ, "PYTHONPATH": str(older)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
@requirement("anthropic:sdk:ignored", "anthropic:sdk:keys")
def test_what_a_release_adds_changes_nothing(path: Path, header: str) -> None:
    with serving(path) as service:
        token = made_key(service.path)
        key = {header: token if header == "x-api-key" else f"Bearer {token}"}
        more = {
            "anthropic-version": "1999-01-01",
            "anthropic-beta": "managed-agents-2026-04-01,agent-memory-2026-07-22",
            "anthropic-workspace-id": "wrkspc_of_nobody",
        }
        with calling(service, None) as client:
            plain = client.post(STORES, json={"name": "notes"}, headers=key)
            laden = client.get(
                f"{STORES}/{plain.json()['id']}?beta=true&beta=false", headers=key | more
            )
            bare = client.get(STORES, headers=more)

    assert (plain.status_code, laden.status_code, bare.status_code) == (200, 200, 401)
    assert laden.json() == plain.json()
