"""The platform's own values, as its chart has them, with the real program in the room of a pod.

Its root is a file system of its own that is read-only, without /tmp and without a home; /data is
a volume of the user 65534, who has no capabilities. It has the network of this machine.
"""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..support.manifests import NOBODY, ROOT
from ..support.process import Program, free_port, program
from ..support.service import PLAIN, observation
from .test_packaging import final_stage, image_environment

LIMIT = 128  # MiB that the pod may take
FIRST_KEY = ("keys", "create", "--name", "me", "--role", "admin")
# The shell makes the root from folders of this machine, each at its own path, and enters it.
ENTER = """
set -e
mount -t tmpfs -o mode=755,size=1m tmpfs {room}
for link in /bin /lib /lib64 /sbin; do
  if [ -L $link ]; then cp -P $link {room}; elif [ -d $link ]; then mkdir {room}$link; fi
done
for folder in {folders}; do
  if [ -d $folder ] && [ ! -L $folder ]; then
    mkdir -p {room}$folder
    mount --rbind $folder {room}$folder
  fi
done
mkdir {room}/data {room}/dev
touch {room}/dev/null
mount --bind /dev/null {room}/dev/null
mount --bind {data} {room}/data
mount -o remount,ro {room}
exec chroot {room} setpriv --reuid {user} --regid {user} --clear-groups --inh-caps=-all \\
  --bounding-set=-all --no-new-privs env --chdir=/data "$@"
"""


@pytest.fixture
def room(tmp_path: Path) -> Sequence[str]:
    """The command that runs another in the room of a pod, whose volume is `data`."""
    if os.geteuid() != 0:
        pytest.skip("the room of a pod needs root")
    for folder in ("room", "data"):
        (tmp_path / folder).mkdir()
    os.chown(tmp_path / "data", NOBODY, NOBODY)
    here = {Path(sys.base_prefix), Path(sys.prefix), ROOT / "service"}
    folders = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", *sorted(map(str, here))]
    script = ENTER.format(
        room=shlex.quote(str(tmp_path / "room")), data=shlex.quote(str(tmp_path / "data")),
        folders=shlex.join(folders), user=NOBODY,
    )  # fmt: skip
    command = ("unshare", "--mount", "sh", "-c", script, "sh")
    made = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"the room of a pod cannot be made: {made.stderr.strip()}")
    return command


@contextmanager
def on_the_platform(room: Sequence[str], port: int, *arguments: str) -> Iterator[Program]:
    """The image's program with the variables of the image and of the platform's chart."""
    entry, command = (json.loads(line) for (line,) in map(final_stage, ("ENTRYPOINT", "CMD")))
    assert entry == ["agentops-memory"]
    variables = image_environment() | {
        "MEMORY_LISTEN": f":{port}",
        "MEMORY_DB_PATH": "/data/memory.db",
        "PATH": os.environ["PATH"],
    }
    with program(*(arguments or command), variables=variables, within=room) as running:
        yield running


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_the_service_runs_with_the_platforms_values(tmp_path: Path, room: Sequence[str]) -> None:
    port = free_port()
    with on_the_platform(room, port) as pod, pod.client() as started:
        assert started.get("/health").json() == {"status": "ok"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=PLAIN) as http:
            for number in range(100):
                body = observation(f"Webhook {number} was retried {number} times. " * 40)
                assert http.post("/observations", json=body).status_code == 201
                assert http.get("/health").status_code == 200
                asked = {"project": "demo", "query": f"Which webhook was retried {number} times?"}
                assert http.get("/context", params=asked).status_code == 200
            assert len(http.get("/export").json()["observations"]) == 100
            lines = Path(f"/proc/{pod.pid}/status").read_text("ascii").splitlines()
            status = {name: rest.split() for name, _, rest in (it.partition(":") for it in lines)}
            with on_the_platform(room, port, *FIRST_KEY) as made:
                assert made.wait() == 0, made.errors
            assert http.get("/stats").status_code == 401
        pod.send(signal.SIGTERM)
        assert pod.wait() == 0

    assert {*status["Uid"], *status["Gid"]} == {str(NOBODY)}
    assert int(status["CapEff"][0], 16) == int(status["CapBnd"][0], 16) == 0
    assert int(status["VmHWM"][0]) < LIMIT * 1024, status["VmHWM"]
    (warning,) = (it for it in map(json.loads, pod.lines) if it["level"] == "WARNING")
    assert warning["message"].startswith(f"anyone who can reach port {port} is admin")
    assert made.output.startswith("amk_")
    assert pod.errors == ""
    files = {it.name: it.stat() for it in (tmp_path / "data").iterdir()}
    assert all(name.startswith("memory.db") for name in files)
    assert {(it.st_uid, stat.S_IMODE(it.st_mode) & 0o077) for it in files.values()} == {(NOBODY, 0)}
