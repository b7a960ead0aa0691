"""On which file systems a database may lie."""

import errno
import os
import shlex
from pathlib import Path

import pytest

from agentops_memory.engine import files as atomic
from agentops_memory.engine.files import file_system, is_network, kind_at, placed, require_local
from agentops_memory.errors import StartRefused

from ..support.callers import calling, made_key
from ..support.process import program
from ..support.service import serving
from ..support.terminal import Terminal

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
30 27 0:40 / /data rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b
31 30 0:41 /exports/a /data/team\040share rw,relatime shared:9 - nfs4 files:/exports rw,vers=4.2
32 31 259:1 /disk /data/team\040share/fast rw - xfs /dev/nvme0n1 rw
33 27 0:42 / /mnt/auto rw - autofs /etc/auto.misc rw
34 33 0:43 / /mnt/auto rw - cifs //files/share rw
35 27 0:44 / /mnt/back\134slash rw - fuse.sshfs ada@host: rw
broken
36 27 0:45 / /mnt/no-kind rw
"""


def test_the_kind_is_that_of_the_longest_mount_point_and_tells_whether_machines_share_it() -> None:
    kinds = {
        "/": "ext4", "/home/ada/memory.db": "ext4", "/database": "ext4",
        "/data/memory.db": "overlay", "/data/team share": "nfs4",
        "/data/team share/memory.db": "nfs4", "/data/team shared/memory.db": "overlay",
        "/data/team share/fast/memory.db": "xfs", "/mnt/auto/memory.db": "cifs",
        "/mnt/back\\slash/memory.db": "fuse.sshfs", "/mnt/no-kind/memory.db": "ext4",
    }  # fmt: skip
    shared = "nfs nfs4 cifs smb3 ceph lustre 9p virtiofs fuse fuse.sshfs fuse.s3fs fuse.unheard-of"
    own = "ext4 xfs btrfs zfs tmpfs overlay f2fs apfs fuseblk fuse.mergerfs fuseless"

    assert {place: kind_at(Path(place), MOUNTS) for place in kinds} == kinds
    assert kind_at(Path("/data"), "") is None
    assert [kind for kind in shared.split() if not is_network(kind)] == []
    assert [kind for kind in own.split() if is_network(kind)] == []


def listed(path: Path) -> str:
    """The path as the table of mounts has it, on a machine whose folders have spaces."""
    return str(path).replace(" ", r"\040")


def test_a_file_is_looked_for_where_links_lead_and_one_that_is_missing_in_its_nearest_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, far = tmp_path / "mountinfo", tmp_path / "far"
    monkeypatch.setattr(atomic, "MOUNTS", table)
    assert file_system(far) is None  # nobody can tell
    require_local(far, is_network_allowed=False)

    far.mkdir()
    near = tmp_path / "near.db"
    near.symlink_to(far / "memory.db")
    table.write_text(
        "1 0 8:0 / / rw - ext4 /dev/sda rw\n"
        f"2 1 0:9 / {listed(far)} rw - nfs4 host:/ rw\n"
        f"3 1 0:9 / {listed(far)}/not/mounted rw - xfs /dev/sdb rw\n"
    )
    assert (file_system(near), file_system(tmp_path)) == ("nfs4", "ext4")
    assert file_system(far / "not" / "mounted" / "memory.db") == "nfs4"

    with pytest.raises(StartRefused, match=r"near\.db is on .* nfs4, .* MEMORY_ALLOW_NETWORK_FS=1"):
        require_local(near, is_network_allowed=False)
    require_local(tmp_path, is_network_allowed=False)
    assert caplog.records == []
    require_local(near, is_network_allowed=True)
    assert [record.file_system for record in caplog.records] == ["nfs4"]  # type: ignore[attr-defined]


COMMANDS = (
    "serve --listen 127.0.0.1:0", "mcp --project p", "index --check", "scan",
    "save --project p title content", "search word", "context --project p", "stats", "export",
    "projects list", "tenants create acme", "tenants list", "export --tenant default",
    "tenants erase acme --yes", "backup --to .", "restore memory.zip --force",
)  # fmt: skip


@pytest.mark.slow
def test_every_command_that_opens_the_file_refuses_it_on_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, database = tmp_path / "mountinfo", tmp_path / "far" / "memory.db"
    with serving(database) as service:
        service.save("from before")
    (tmp_path / "far" / "memory.db.tenants").mkdir()
    (tmp_path / "far" / "memory.db.tenants" / "acme.db").touch()
    before = sorted(database.parent.rglob("*"))
    monkeypatch.setattr(atomic, "MOUNTS", table)
    monkeypatch.chdir(tmp_path)
    table.write_text(f"1 0 0:9 / {listed(tmp_path)}/far rw - nfs4 host:/ rw\n")

    for command in COMMANDS:
        done = Terminal({"MEMORY_DB_PATH": str(database)}).run(*command.split())
        assert (done.exit_code, "of the kind nfs4" in done.stderr) == (1, True), (command, done)
    assert sorted(database.parent.rglob("*")) == before

    allowing = Terminal({"MEMORY_DB_PATH": str(database), "MEMORY_ALLOW_NETWORK_FS": "1"})
    assert "from before" in allowing.say("search", "before", "--project", "")
    assert allowing.run("index", "--allow-network-fs", "off").exit_code == 1


def test_a_tenant_whose_folder_is_on_a_network_file_system_has_503_and_a_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, path = tmp_path / "mountinfo", tmp_path / "memory.db"
    monkeypatch.setattr(atomic, "MOUNTS", table)
    (tmp_path / "memory.db.tenants").mkdir()
    table.write_text(f"1 0 0:9 / {listed(tmp_path)}/memory.db.tenants rw - cifs //host/x rw\n")
    tokens = [made_key(path, tenant=tenant) for tenant in ("default", "acme")]

    with serving(path) as service:
        stats = []
        for token in tokens:
            with calling(service, token) as http:
                stats.append(http.get("/stats").status_code)

    assert stats == [200, 503]
    reasons = "".join(getattr(record, "reason", "") for record in caplog.records)
    assert "acme.db is on a file system of the kind cifs" in reasons


@pytest.mark.slow
def test_a_start_on_what_the_kernel_calls_nfs_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a table of mounts of its own needs root")
    table = tmp_path / "mountinfo"
    table.write_text(
        f"1 0 8:0 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {listed(tmp_path)} rw - nfs host:/ rw\n"
    )
    # What a process sees of itself lies in /proc by its number, which exec keeps.
    bound = f'mount --bind {shlex.quote(str(table))} /proc/$$/mountinfo && exec "$@"'
    within = ("unshare", "--mount", "sh", "-c", bound, "sh")
    own = {"MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_DB_PATH": str(tmp_path / "memory.db")}

    with program("serve", variables=own, within=within) as refused:
        assert refused.wait() == 1
        assert "memory.db is on a file system of the kind nfs, which several" in refused.errors
    allowed = own | {"MEMORY_ALLOW_NETWORK_FS": "on"}
    with program("serve", variables=allowed, within=within) as running, running.client() as http:
        assert http.get("/health/ready").status_code == 200
        running.line("the database is on a network file system")


def test_where_there_are_no_hard_links_a_name_that_is_taken_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    draft, path = tmp_path / "draft", tmp_path / "file"
    draft.write_text("first")
    placed(draft, path)
    draft.write_text("second")

    with pytest.raises(FileExistsError):
        placed(draft, path)
    assert (path.read_text(), draft.read_text()) == ("first", "second")
