"""The file of keys and its audit: changed by the command `keys`, by many at once, by hand."""

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agentops_memory.cli import main
from agentops_memory.cli.commands.keys import ROLES
from agentops_memory.errors import Unavailable
from agentops_memory.memory.access import EVERYTHING, Role, TenantId
from agentops_memory.memory.keys import Key, KeyRing, issued
from agentops_memory.operations.files import keys as key_file
from agentops_memory.operations.files.audit import record
from agentops_memory.operations.files.keys import KeyFile, KeyFileRefused, WatchedKeys

from ..support.callers import made_key
from ..support.files import disk
from ..support.process import run
from ..support.samples import for_each
from ..support.service import START, Clock

TOKEN = re.compile(r"amk_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
CI = ("create", "--name", "ci", "--role", "writer")
ADA = {"user": "ada", "uid": 1000}
SOON = timedelta(milliseconds=100)
PROGRAM = """
import sys
from agentops_memory.cli import main
main(["keys", *sys.argv[1:]])
"""
KILLED_AT_THE_RENAME = f"""
import os, signal, sys
sys.addaudithook(lambda event, _: event == "os.rename" and os.kill(os.getpid(), signal.SIGKILL))
{PROGRAM}
"""


class Desk:
    """The command `keys` over the database of a test, which need not exist."""

    def __init__(self, db: Path) -> None:
        self.db = db
        self.path = Path(f"{db}.keys")
        self.audit = Path(f"{db}.audit")
        self.file = KeyFile(self.path, self.audit)

    def run(self, *arguments: str, **variables: str) -> Result:
        own = {"MEMORY_DB_PATH": str(self.db), "MEMORY_KEYS_FILE": "", **variables}
        return CliRunner().invoke(main, ["keys", *arguments], env=own)

    def done(self, *arguments: str, **variables: str) -> str:
        """What it prints; it must succeed."""
        result = self.run(*arguments, **variables)
        assert result.exit_code == 0, result.output
        return result.stdout

    def made(self, *arguments: str) -> tuple[str, str]:
        """The id and the token of a new key."""
        token = self.done(*CI, *arguments).strip()
        match = TOKEN.fullmatch(token)
        assert match, token
        return match[1], token

    def refusal(self, *arguments: str, **variables: str) -> str:
        """The one sentence with which it refuses."""
        result = self.run(*arguments, **variables)
        assert (result.exit_code, result.stdout) == (1, "")
        assert re.fullmatch(r"agentops-memory: [^\n]+\.\n", result.stderr), result.stderr
        return result.stderr

    def process(self, *arguments: str, code: str = PROGRAM) -> subprocess.CompletedProcess[str]:
        return run(*arguments, variables={"MEMORY_DB_PATH": str(self.db)}, code=code)

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit.read_text("utf-8").splitlines()]

    def opens(self, token: str) -> bool:
        return self.file.ring().opened_by(token, START) is not None


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data" / "memory.db")


def test_a_key_is_printed_alone_and_explained_elsewhere(desk: Desk) -> None:
    result = desk.run(*CI, "--project", "Billing-*", "--project", "shop")

    match = TOKEN.fullmatch(result.stdout.removesuffix("\n"))
    assert match
    assert result.stderr == (
        f"Key {match[1]} (ci): writer in tenant default, projects billing-*, shop. "
        "It is shown this once.\n"
        "This is the first key: from now on every request needs a key.\n"
    )
    assert match[2] not in result.stderr
    assert desk.opens(match[0])


def test_a_key_is_on_disk_before_it_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.made()
    synced, fsync = [], os.fsync

    def noted(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    desk.made()

    assert [path.name for path in synced if path.suffix == ".new"] == [f"{desk.path.name}.new"]
    assert synced[-1] == desk.path.parent


def test_only_the_first_key_is_said_to_close_the_service(desk: Desk) -> None:
    first, _ = desk.made()
    assert "first key" not in desk.run(*CI).stderr
    desk.done("revoke", first)
    assert "first key" not in desk.run(*CI).stderr
    desk.done("reset", "--open")
    assert "first key" in desk.run(*CI).stderr


def test_a_key_is_printed_with_its_record_when_json_is_asked_for(desk: Desk) -> None:
    shown = json.loads(desk.done(*CI, "--tenant", "acme", "--project", "a", "--json"))

    assert TOKEN.fullmatch(shown.pop("key"))
    assert shown == {
        "id": next(iter(desk.file.ring().keys)), "name": "ci", "tenant": "acme", "role": "writer",
        "projects": ["a"], "agents": [], "coordinates": False,
        "created_at": desk.audited()[0]["at"], "revoked_at": None, "old_secret_until": None,
    }  # fmt: skip


def test_a_key_speaks_for_the_agents_that_are_named(desk: Desk) -> None:
    before = desk.path.read_text("utf-8") if desk.path.exists() else ""
    plain = json.loads(desk.done(*CI, "--json"))
    assert "agents" not in before + desk.path.read_text("utf-8")  # an older program reads it

    result = desk.run(*CI, "--agent", "coder", "--agent", "team-*", "--agent", "coder")

    assert "projects *, agents coder, team-*. It is shown" in result.stderr
    shown = {key["id"]: key["agents"] for key in json.loads(desk.done("list", "--json"))}
    assert shown.pop(plain["id"]) == []
    assert [*shown.values()] == [["coder", "team-*"]]
    assert "coder,team-*" in desk.done("list")
    assert desk.audited()[1]["agents"] == ["coder", "team-*"]
    assert "An agent pattern" in desk.run(*CI, "--agent", "a,b").stderr


def test_a_key_makes_intents_if_that_is_said(desk: Desk) -> None:
    plain = json.loads(desk.done(*CI, "--json"))
    assert "coordinates" not in desk.path.read_text("utf-8")  # an older program reads it

    result = desk.run(*CI, "--agent", "lead", "--coordinator")

    assert "agents lead, coordinator. It is shown" in result.stderr
    shown = {key["id"]: key["coordinates"] for key in json.loads(desk.done("list", "--json"))}
    assert shown.pop(plain["id"]) is False
    assert [*shown.values()] == [True]
    said = [line.get("coordinates") for line in desk.audited()]
    assert said == [None, True]
    assert [key.coordinates for key in desk.file.ring().keys.values()].count(True) == 1


def test_a_tenant_without_a_database_is_noted(desk: Desk) -> None:
    database = Path(f"{desk.db}.tenants", "acme.db")
    note = f"Note: the tenant acme has no database yet; its name will be {database}.\n"

    assert note in desk.run(*CI, "--tenant", "acme").stderr
    database.parent.mkdir()
    database.touch()
    assert "Note" not in desk.run(*CI, "--tenant", "acme").stderr
    assert "Note" not in desk.run(*CI).stderr


@for_each(
    "arguments, said",
    [
        (("create", "--name", " ", "--role", "reader"), "key's name"),
        (("create", "--name", "a\nb", "--role", "reader"), "key's name"),
        ((*CI, "--tenant", "Acme"), "tenant's name"),
        ((*CI, "--project", " "), "project pattern"),
        (("revoke", "unknown"), "no key with this id"),
        (("rotate", "unknown"), "no key with this id"),
        ((*CI, "--keys-file", "/nonexistent/keys"), "/nonexistent/keys cannot be changed"),
        ((*CI, "--keys-file", "/proc/keys"), "/proc/keys cannot be changed"),
        ((*CI, "--db", "/proc/nowhere/memory.db"), "folder /proc/nowhere cannot be created"),
        (("list", "--keys-file", "/dev/null"), "not a key file"),
        (("list", "--keys-file", "/"), "not a key file"),
        (("list", "--keys-file", "/dev/null/keys"), "cannot be read: Not a directory"),
    ],
)
def test_what_cannot_be_done_is_refused_with_one_sentence(
    arguments: tuple[str, ...], said: str, desk: Desk
) -> None:
    assert said in desk.refusal(*arguments)
    assert not desk.path.exists()


@for_each(
    "arguments, said",
    [
        ((), "Usage: "),
        (("create", "--role", "writer"), "Missing option '--name'"),
        (("create", "--name", "ci"), "Missing option '--role'"),
        (("create", "--name", "ci", "--role", "boss"), "'boss' is not one of"),
        (("revoke",), "Missing argument 'ID'"),
        (("rotate", "x", "--keep-old", "1d"), "'1d' is not a duration"),
        (("reset",), "To confirm, add --open."),
    ],
)
def test_what_is_no_command_is_a_matter_of_usage(
    arguments: tuple[str, ...], said: str, desk: Desk
) -> None:
    result = desk.run(*arguments)

    assert result.exit_code == 2
    assert said in result.stderr
    assert not desk.path.exists()


def test_the_list_shows_the_keys_that_work_and_no_secret(desk: Desk) -> None:
    ended, _ = desk.made("--project", "a", "--project", "b-*")
    other, token = desk.made("--tenant", "acme")
    desk.done("revoke", ended)

    brief, full = desk.done("list"), desk.done("list", "--all")

    assert [line.split()[:5] for line in brief.splitlines()] == [
        ["ID", "NAME", "TENANT", "ROLE", "PROJECTS"],
        [other, "ci", "acme", "writer", "*"],
    ]
    assert re.search(
        rf"^{ended}  ci .* a,b-\*  .*  revoked (just now|in \d+ \w+|\d+ \w+ ago)$",
        full,
        re.MULTILINE,
    )
    assert len({line.index("ci ") for line in full.splitlines()[1:]}) == 1
    assert token.rpartition(other)[2] not in full


def test_the_list_is_json_when_asked_for(desk: Desk) -> None:
    ended, _ = desk.made()
    other, _ = desk.made()
    desk.done("revoke", ended)
    desk.done("rotate", other, "--keep-old", "1h")

    (shown,) = json.loads(desk.done("list", "--json"))
    assert (shown["id"], shown["revoked_at"]) == (other, None)
    assert shown["old_secret_until"] > shown["created_at"]
    states = {
        row["id"]: row["revoked_at"] for row in json.loads(desk.done("list", "--all", "--json"))
    }
    assert states == {ended: desk.audited()[2]["at"], other: None}


def test_a_list_without_keys_says_so(desk: Desk) -> None:
    result = desk.run("list", "--json")

    assert (json.loads(result.stdout), result.exit_code) == ([], 0)
    assert "No key has been created" in result.stderr


def test_what_a_terminal_would_obey_is_not_listed_as_it_is(desk: Desk) -> None:
    desk.made()
    made_key(desk.db, projects=("a\x1b[2Jb",))  # as older versions took it

    assert r"a\u001b[2jb" in desk.done("list")


def test_a_rotated_key_has_its_id_and_another_token(desk: Desk) -> None:
    which, old = desk.made()

    result = desk.run("rotate", which)

    assert "The old one works no more." in result.stderr
    assert (desk.opens(old), desk.opens(result.stdout.strip())) == (False, True)
    assert desk.file.ring().keys.keys() == {which}


def test_an_old_secret_may_work_on_for_a_while(desk: Desk) -> None:
    which, old = desk.made()

    result = desk.run("rotate", which, "--keep-old", "100000h")

    assert re.search(r"The old one works until \d{4}-\d\d-\d\dT.*Z\.\n", result.stderr)
    assert desk.opens(old)
    assert "works; the old secret ends in" in desk.done("list")


def test_a_key_can_be_revoked_twice_and_then_not_rotated(desk: Desk) -> None:
    which, token = desk.made()

    assert (
        desk.done("revoke", which)
        == desk.done("revoke", which)
        == f"Key {which} (ci) is revoked.\n"
    )

    assert not desk.opens(token)
    assert "revoked; create another" in desk.refusal("rotate", which)
    assert [line["action"] for line in desk.audited()] == ["key.created", "key.revoked"]


def test_a_reset_forgets_every_key_and_is_audited(desk: Desk) -> None:
    which, _ = desk.made()
    desk.made()
    desk.done("revoke", which)

    assert desk.done("reset", "--open") == "Forgot 2 keys; no key is left.\n"

    assert desk.file.ring() == KeyRing()
    assert desk.audited()[-1].items() >= {"action": "keys.reset", "keys": 2}.items()
    assert desk.done("reset", "--open") == "Forgot 0 keys; no key is left.\n"
    assert len(desk.audited()) == 4


def test_the_file_may_be_named_by_a_flag_or_a_variable(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other.keys"
    desk.done(*CI, "--keys-file", str(other))
    desk.done(*CI, MEMORY_KEYS_FILE=str(other))

    assert not desk.path.exists()
    assert len(KeyFile(other, desk.audit).ring().keys) == 2
    assert len(desk.audited()) == 2


def test_every_change_leaves_a_line_that_says_who_did_what_to_which_key(desk: Desk) -> None:
    which, first = desk.made("--tenant", "acme", "--project", "a")
    second = desk.done("rotate", which)
    desk.done("revoke", which)

    lines = desk.audited()

    assert [line.pop("action") for line in lines] == ["key.created", "key.rotated", "key.revoked"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line.pop("at")) for line in lines)
    assert all(line.pop("by")["uid"] == os.getuid() for line in lines)
    line = {"key": which, "name": "ci", "tenant": "acme", "role": "writer", "projects": ["a"]}
    assert lines == [line] * 3
    for token in (first, second.strip()):
        assert token[17:] not in desk.audit.read_text("utf-8") + desk.path.read_text("utf-8")


def test_no_value_in_the_audit_can_look_like_another_line(desk: Desk) -> None:
    desk.db.parent.mkdir()
    text = 'a"}\n{"action": "keys.reset"}\r\u2028\udc80'

    record(desk.audit, START, "tenant.created", ADA, tenant=text)

    assert desk.audited() == [
        {"at": "2030-01-01T12:00:00Z", "action": "tenant.created", "by": ADA, "tenant": text}
    ]


def test_a_line_that_was_cut_short_does_not_spoil_the_next(desk: Desk) -> None:
    desk.db.parent.mkdir()
    desk.audit.write_text('{"at": "2029')

    record(desk.audit, START, "project.erased", ADA, project="demo")

    cut, whole = desk.audit.read_text("utf-8").splitlines()
    assert cut == '{"at": "2029'
    assert json.loads(whole)["project"] == "demo"


def test_nothing_is_changed_that_cannot_be_audited(desk: Desk) -> None:
    which, token = desk.made()
    desk.audit.unlink()
    desk.audit.mkdir()

    assert f"audit file {desk.audit} cannot be written" in desk.refusal("revoke", which)

    assert desk.opens(token)
    assert not desk.path.with_name(f"{desk.path.name}.new").exists()


def test_the_files_are_for_their_owner_alone(desk: Desk) -> None:
    before = os.umask(0)
    try:
        desk.made()
        desk.path.chmod(0o644)
        desk.made()
    finally:
        os.umask(before)

    assert {path.name: oct(path.stat().st_mode & 0o777) for path in desk.db.parent.iterdir()} == {
        "memory.db.keys": "0o600", "memory.db.keys.lock": "0o600", "memory.db.audit": "0o600",
        "memory.db.closed": "0o600",
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file for another user")
def test_what_root_makes_belongs_to_whom_the_folder_or_the_file_belongs(desk: Desk) -> None:
    desk.db.parent.mkdir()
    os.chown(desk.db.parent, 10001, 10002)
    desk.made()
    assert {owner(path) for path in desk.db.parent.iterdir()} == {(10001, 10002)}

    os.chown(desk.path, 10003, 10004)
    desk.made()
    assert owner(desk.path) == (10003, 10004)


def owner(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid


def test_processes_that_make_keys_at_once_lose_none(desk: Desk) -> None:
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda _: desk.process(*CI), range(16)))

    tokens = [process.stdout.strip() for process in done]
    assert [process.returncode for process in done] == [0] * 16
    assert sum("first key" in process.stderr for process in done) == 1
    assert not any("are lost" in process.stderr for process in done)
    assert all(map(desk.opens, tokens))
    assert {line["key"] for line in desk.audited()} == desk.file.ring().keys.keys()


def test_a_change_that_is_killed_before_the_rename_has_not_happened(desk: Desk) -> None:
    which, token = desk.made()
    before = desk.path.read_bytes()

    killed = desk.process("revoke", which, code=KILLED_AT_THE_RENAME)

    assert (killed.returncode, killed.stdout) == (-9, "")
    assert desk.path.with_name(f"{desk.path.name}.new").exists()
    assert desk.path.read_bytes() == before
    desk.done("revoke", which)
    assert not desk.opens(token)
    assert sorted(path.name for path in desk.db.parent.iterdir()) == [
        "memory.db.audit", "memory.db.closed", "memory.db.keys", "memory.db.keys.lock",
    ]  # fmt: skip


def test_a_change_waits_for_another_and_not_for_ever(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_file, "TIMEOUT", SOON)
    desk.made()

    with locked(desk.path):
        assert "Another process is changing the keys" in desk.refusal(*CI)
        assert len(desk.file.ring().keys) == 1

    desk.made()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process in the middle of a change."""
    with path.with_name(f"{path.name}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_read_only_disk_can_be_read_and_refuses_a_change(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=1024 * 1024) as folder:
        desk = Desk(folder / "memory.db")
        which, token = desk.made()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)

        said = desk.refusal("revoke", which)

        assert f"{desk.path} cannot be changed: Read-only file system" in said
        assert desk.opens(token)


def test_a_full_disk_refuses_a_change_and_keeps_what_was(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=64 * 1024) as folder:
        desk = Desk(folder / "memory.db")
        which, token = desk.made()
        fill(folder / "filler")

        assert "cannot be changed" in desk.refusal("revoke", which)

        assert desk.opens(token)
        (folder / "filler").unlink()
        desk.done("revoke", which)


def fill(file: Path) -> None:
    """Leave no room on the disk on which the file is."""
    with suppress(OSError), file.open("wb", 0) as filler:
        while filler.write(b"x" * 4096):
            pass


def test_a_mounted_file_whose_link_is_swapped_is_read_anew(tmp_path: Path) -> None:
    old, new = mounted_at(tmp_path / "old"), mounted_at(tmp_path / "new")
    (tmp_path / "..data").symlink_to("old")
    (tmp_path / "keys").symlink_to("..data/keys")
    watched = WatchedKeys(KeyFile(tmp_path / "keys", tmp_path / "audit"))
    assert watched.ring().opened_by(old, START)

    (tmp_path / "..data_tmp").symlink_to("new")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    assert watched.ring().opened_by(new, START)
    assert not watched.ring().opened_by(old, START)


def mounted_at(folder: Path) -> str:
    """The token of the one key in the folder's file."""
    folder.mkdir()
    key, token = made()
    KeyFile(folder / "keys", folder / "audit").create(key, at=START, by=ADA)
    return token


def made() -> tuple[Key, str]:
    return issued("ci", TenantId("default"), Role.WRITER, EVERYTHING, START)


def test_a_change_through_a_link_keeps_the_link(desk: Desk, tmp_path: Path) -> None:
    desk.db.parent.mkdir()
    desk.path.symlink_to(tmp_path / "real")

    with pytest.raises(KeyFileRefused, match="No such file"):
        desk.file.ring()
    (tmp_path / "real").write_text('{"version": 1, "keys": []}')
    desk.made()

    assert desk.path.is_symlink()
    assert len(KeyFile(tmp_path / "real", desk.audit).ring().keys) == 1


@pytest.mark.slow
def test_each_of_many_quick_changes_is_seen_at_the_next_look(tmp_path: Path) -> None:
    file, clock = KeyFile(tmp_path / "keys", tmp_path / "audit"), Clock()
    watched = WatchedKeys(file)
    key, token = made()
    file.create(key, at=clock(), by=ADA)

    for _ in range(50):
        assert watched.ring().opened_by(token, clock())
        _, new = file.rotate(key.id, timedelta(), at=clock(), by=ADA)
        file.rotate(key.id, timedelta(), at=clock(), by=ADA)
        assert not watched.ring().opened_by(token, clock())
        assert not watched.ring().opened_by(new, clock())
        _, token = file.rotate(key.id, timedelta(), at=clock(), by=ADA)


def test_a_change_has_a_later_time_than_the_one_before_whatever_the_clock_says(desk: Desk) -> None:
    desk.made()
    tomorrow = desk.path.stat().st_mtime_ns + 86_400 * 10**9
    os.utime(desk.path, ns=(tomorrow, tomorrow))

    desk.made()

    assert desk.path.stat().st_mtime_ns == tomorrow + 1


def test_what_is_written_is_what_is_read(desk: Desk) -> None:
    key, _ = made()
    desk.db.parent.mkdir()
    desk.file.create(key, at=START, by=ADA)
    desk.file.create(made()[0], at=START, by=ADA)
    rotated, _ = desk.file.rotate(key.id, timedelta(hours=1, microseconds=7), at=START, by=ADA)

    assert desk.file.ring().key(key.id) == rotated
    assert next(iter(desk.file.ring().keys)) == key.id


def test_an_empty_list_that_no_reset_wrote_lets_nobody_in(desk: Desk) -> None:
    desk.db.parent.mkdir()
    desk.path.write_text('{"version": 1, "keys": []}')

    assert desk.file.ring() == KeyRing(was_ever_used=True)


def edited(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["keys"][0].update(fields)


SECRET = {"salt": "00" * 16, "digest": "11" * 32}


@pytest.mark.representative(13)
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda document: document.update(version=2), "version 2, which a newer program wrote"),
        (lambda document: document.update(version="1"), "it has no version"),
        (lambda document: document.update(version=True), "it has no version"),
        (lambda document: document.pop("version"), "it has no version"),
        (lambda document: document.pop("keys"), "its keys cannot be used"),
        (lambda document: document.update(keys={}), "its keys cannot be used"),
        (lambda document: document.update(key=[]), "'key' is not a field that belongs there"),
        (lambda document: document.update(reset_at="now"), "its reset_at cannot be used"),
        (lambda document: document["keys"].append(document["keys"][0]), "have the same id"),
        (lambda document: document["keys"].append(7), "key number 2: it is not a JSON object"),
        (edited(id="AMK"), r"key number 1 \(ci\): A key's id has 12"),
        (edited(id=None), r"key number 1 \(ci\): its id cannot be used"),
        (edited(name=""), "key {id}: A key's name"),
        (edited(name=["ci"]), "key {id}: its name cannot be used"),
        (edited(tenant="../x"), r"key {id} \(ci\): A tenant's name"),
        (edited(tenant=None), r"key {id} \(ci\): its tenant cannot be used"),
        (edited(role="boss"), "its role cannot be used"),
        (edited(projects=[]), "A project pattern must be"),
        (edited(projects="*"), "its projects cannot be used"),
        (edited(projects=[7]), "its projects cannot be used"),
        (edited(agents="*"), "its agents cannot be used"),
        (edited(agents=[7]), "its agents cannot be used"),
        (edited(agents=["a b"]), "An agent pattern must be"),
        (edited(agents=["a*" * 9]), "An agent pattern must be"),
        (edited(agents=[f"a{number}" for number in range(101)]), "at most 100 patterns"),
        (edited(coordinates="yes"), "its coordinates cannot be used"),
        (edited(created_at=None), "its created_at cannot be used"),
        (edited(created_at=7), "its created_at cannot be used"),
        (edited(revoked_at=False), "its revoked_at cannot be used"),
        (edited(revoked=True), "'revoked' is not a field that belongs there"),
        (edited(secrets=[]), "it has no secret"),
        (edited(secrets=[7]), "its secrets cannot be used"),
        (edited(secrets=[SECRET | {"salt": "00"}]), "its secrets cannot be used"),
        (edited(secrets=[SECRET | {"digest": "zz" * 32}]), "its secrets cannot be used"),
        (edited(secrets=[SECRET | {"until": "soon"}]), "its secrets cannot be used"),
        (edited(secrets=[SECRET | {"till": None}]), "its secrets cannot be used"),
    ],
    ids=range(36),
)
def test_a_file_that_was_edited_wrongly_is_refused_with_what_is_wrong(
    edit: Callable[[dict[str, Any]], object], said: str, desk: Desk
) -> None:
    which, _ = desk.made()
    document = json.loads(desk.path.read_text("utf-8"))
    (secret,) = document["keys"][0]["secrets"]
    edit(document)
    desk.path.write_text(json.dumps(document))

    for command in (("list",), ("revoke", which), CI):
        refusal = desk.refusal(*command)
        assert re.search(rf"{desk.path} cannot be used: .*{said.replace('{id}', which)}", refusal)
        assert secret["salt"] not in refusal
        assert secret["digest"] not in refusal
    assert json.loads(desk.path.read_text("utf-8")) == document


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1 is no JSON"), (b'{"version": 1,\n"keys": [', "line 2 is no JSON"),
        (b"\xff\xfe\xfa", "no UTF-8|no JSON"), (b'{"version": 1, "keys": "\xff"}', "no UTF-8"),
        (b"[]", "no version"), (b"[" * 100_000, "recursion"),
        (b'{"version": 1, "keys": [], "keys": []}', "a field occurs twice"),
        (b'{"version": 1' + b"0" * 5000 + b"}", "integer string conversion"),
    ],
)  # fmt: skip
def test_what_is_no_document_of_keys_is_refused(content: bytes, said: str, desk: Desk) -> None:
    desk.db.parent.mkdir()
    desk.path.write_bytes(content)

    assert re.search(said, desk.refusal("list"))


def test_a_file_may_be_written_by_hand_with_what_is_needed_alone(desk: Desk) -> None:
    desk.db.parent.mkdir()
    key, token = made()
    (secret,) = key.secrets
    own = {"salt": secret.salt.hex(), "digest": secret.digest.hex()}
    fields = {"id": key.id, "name": "x", "tenant": "acme", "role": "admin", "projects": ["A"]}
    written = {**fields, "created_at": "2030-01-01t00:00:00+01:00", "secrets": [own]}
    desk.path.write_text(json.dumps({"version": 1, "keys": [written]}))

    opened = desk.file.ring().opened_by(token, START)

    assert opened is not None
    assert (opened.tenant, opened.role, opened.projects.names) == ("acme", Role.ADMIN, ("a",))


def test_the_start_is_refused_with_what_is_wrong(desk: Desk) -> None:
    desk.db.parent.mkdir()
    desk.path.write_text("{")

    with pytest.raises(KeyFileRefused, match=rf"{desk.path} cannot be used: line 1 is no JSON\."):
        WatchedKeys(desk.file).read()


def test_an_audit_that_is_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    desk.db.parent.mkdir()
    desk.audit.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Unavailable, match="nothing was changed"):
        record(desk.audit, START, "key.created", ADA)

    assert not (tmp_path / "elsewhere").exists()


def test_the_roles_on_the_command_line_are_those_that_there_are() -> None:
    assert list(ROLES) == list(Role)


@for_each("command", ["", "create", "list", "revoke", "rotate", "reset"])
def test_help_fits_a_terminal_and_cuts_no_sentence(command: str, desk: Desk) -> None:
    shown = desk.done(*command.split(), "--help")

    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("\n")[2]


def test_the_commands_load_nothing_until_they_run() -> None:
    code = "import sys, agentops_memory.cli; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout

    for module in (b"agentops_memory.memory.memory", b"sqlite3", b"starlette", b"fcntl"):
        assert module not in loaded.split()


def test_the_settings_compile_no_patterns_of_secrets() -> None:
    """A probe of a container starts the program each time, and reads the settings."""
    code = "import sys, agentops_memory.settings.settings; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout

    assert b"agentops_memory.settings.settings" in loaded.split()
    assert [it for it in loaded.split() if it.startswith(b"agentops_memory.secrets")] == []
