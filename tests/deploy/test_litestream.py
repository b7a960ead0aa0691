"""Litestream's own program copies the databases as the chart tells it to, and brings them back."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

import httpx
import pytest
import yaml

from ..support.callers import made_key
from ..support.chart import CHECKS, GOLDEN
from ..support.engines import rows
from ..support.files import assert_sound
from ..support.losses import Losses
from ..support.manifests import DEPLOY, pod
from ..support.process import DEADLINE, Load, served, stored, until
from ..support.service import observation

PROGRAM = Path(sys.executable).with_name("litestream")
CONFIG = "/etc/litestream/litestream.yml"
TENANT = "acme"
SAVES = 400

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"{CHECKS}, on Linux"),
]


class Copies:
    """The litestream of the chart's pod, on a folder that stands for the volume."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "data" / "memory.db"
        self.tenant = folder / "data" / "memory.db.tenants" / f"{TENANT}.db"
        self._folder = folder
        self._config = folder / "litestream.yml"
        self._pod = self._rendered()
        self.database.parent.mkdir()

    @contextmanager
    def replicating(self) -> Iterator[None]:
        """Inside, what is saved is copied; then it is killed."""
        (container,) = (each for each in self._pod["containers"] if each["name"] == "litestream")
        with subprocess.Popen([PROGRAM, *map(self.here, container["args"])]) as process:
            try:
                yield
            finally:
                process.kill()

    def lose_the_volume(self) -> None:
        rmtree(self.database.parent)
        self.database.parent.mkdir()

    def bring_back(self) -> None:
        """What the pod does before the service starts."""
        for container in self._pod["initContainers"]:
            self._run(*map(self.here, container["args"])).check_returncode()

    def newest(self, database: Path | None = None) -> set[str]:
        """The contents that the copy holds now."""
        restored = self._folder / "newest.db"
        options = "-config", str(self._config), "-o", str(restored), "-force"
        done = self._run("restore", *options, str(database or self.database))
        is_made = done.returncode == 0 and rows(restored, "SELECT 1 FROM sqlite_schema")
        return set(stored(restored)) if is_made else set()

    def go_back(self, instant: datetime) -> None:
        """What the job does that the documents apply."""
        (container,) = pod(DEPLOY / "jobs" / "go-back.yaml")["containers"]
        *shell, script = container["command"]
        moved = re.sub(r"-timestamp \S+", f"-timestamp {instant.isoformat()}", self.here(script))
        path = f"{PROGRAM.parent}:{os.environ['PATH']}"
        subprocess.run([*shell, moved], env={"PATH": path}, check=True, timeout=DEADLINE)

    def here(self, text: str) -> str:
        """What stands in the pod's volumes, in this folder."""
        return text.replace("/data", str(self.database.parent)).replace(CONFIG, str(self._config))

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [PROGRAM, *arguments], capture_output=True, check=False, timeout=DEADLINE
        )

    def _rendered(self) -> Any:
        """The chart's pod; its configuration is written, with a folder instead of the bucket."""
        text = (GOLDEN / "everything.yaml").read_text("utf-8")
        documents = {each["kind"]: each for each in yaml.load_all(text, yaml.CSafeLoader)}
        config = yaml.safe_load(documents["ConfigMap"]["data"]["litestream.yml"])
        for database in config["dbs"]:
            url = database["replica"]["url"].replace("s3://backups", f"file://{self._folder}/there")
            database["path"] = self.here(database["path"])
            database["replica"] = {"url": url, "sync-interval": "100ms"}
        self._config.write_text(json.dumps(config))
        return documents["Deployment"]["spec"]["template"]["spec"]


def test_a_volume_that_is_lost_comes_back_with_its_tenants(tmp_path: Path, lost: Losses) -> None:
    copies = Copies(tmp_path)
    tokens = {tenant: made_key(copies.database, tenant=tenant) for tenant in ("default", TENANT)}
    with copies.replicating(), served(copies.database) as (program, http):
        for tenant, token in tokens.items():
            http.headers["Authorization"] = f"Bearer {token}"
            save(http, f"Of {tenant}")
        until(lambda: copies.newest(copies.tenant) == {f"Of {TENANT}"})
        until(lambda: copies.newest() == {"Of default"})
        program.end()
    copies.lose_the_volume()
    copies.bring_back()

    lost(
        "a volume with a tenant, and litestream's copy",
        acknowledged={"Of default", f"Of {TENANT}"},
        found={*stored(copies.database), *stored(copies.tenant)},
    )
    assert_sound(copies.tenant, live=1)
    assert_sound(copies.database, live=1)


def test_before_a_mistake_all_is_as_it_was_and_goes_on_being_copied(
    tmp_path: Path, lost: Losses
) -> None:
    copies = Copies(tmp_path)
    with copies.replicating(), served(copies.database) as (program, http):
        before = Load(str(http.base_url), saves=SAVES).start()
        before.join()
        until(lambda: len(copies.newest()) == SAVES)
        instant = datetime.now(UTC)
        save(http, "A mistake")
        until(lambda: "A mistake" in copies.newest())
        program.end()
    copies.go_back(instant)
    found = set(stored(copies.database))

    assert "A mistake" in stored(copies.database.parent / "replaced" / "memory.db")
    assert "A mistake" not in found
    with copies.replicating(), served(copies.database) as (program, http):
        save(http, "Since then")
        until(lambda: copies.newest() == {*before.acknowledged, "Since then"})
        program.end()
    assert_sound(copies.database, live=SAVES + 1)
    lost("a mistake, and litestream's copy", acknowledged=set(before.acknowledged), found=found)


def save(http: httpx.Client, content: str) -> None:
    assert http.post("/observations", json=observation(content)).status_code == 201
