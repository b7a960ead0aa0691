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
from agentops_memory.errors import Unavailable
from agentops_memory.memory.access import EVERYTHING, Key, KeyRing, Role, TenantId, issued
from agentops_memory.operations.files import keys as key_file
from agentops_memory.operations.files.keys import KeyFile, KeyFileRefused, WatchedKeys, record

from ..support.files import disk
from ..support.process import run
from ..support.samples import for_each
from ..support.service import START

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


def test_a_key_is_printed_alone_and_the_first_one_is_said_to_close_the_service(desk: Desk) -> None:
    result = desk.run(*CI, "--project", "Billing-*", "--project", "shop")

    match = TOKEN.fullmatch(result.stdout.removesuffix("\n"))
    assert match
    assert result.stderr == (
        f"Key {match[1]} (ci) is shown only once.\n"
        "This is the first key: from now on every request needs a key.\n"
    )
    assert match[2] not in result.stderr
    assert desk.opens(match[0])

    assert "first key" not in desk.run(*CI).stderr
    desk.done("revoke", match[1])
    assert "first key" not in desk.run(*CI).stderr
    assert desk.done("reset", "--open") == "Deleted 3 keys; no key is left.\n"
    assert desk.file.ring() == KeyRing()
    assert desk.audited()[-1].items() >= {"action": "keys.reset", "keys": 3}.items()
    assert desk.done("reset", "--open") == "Deleted 0 keys; no key is left.\n"
    assert "first key" in desk.run(*CI).stderr


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


def test_a_key_is_printed_with_its_record_when_json_is_asked_for(desk: Desk) -> None:
    asked = (*CI, "--tenant", "acme", "--project", "a", "--json")

    made = desk.run(*asked)

    shown = json.loads(made.stdout)
    assert TOKEN.fullmatch(shown.pop("key"))
    assert shown == {
        "id": next(iter(desk.file.ring().keys)), "name": "ci", "tenant": "acme", "role": "writer",
        "projects": ["a"], "agents": [], "coordinates": False,
        "created_at": desk.audited()[0]["at"], "revoked_at": None, "old_secret_until": None,
    }  # fmt: skip


def test_a_key_speaks_for_the_agents_that_are_named_and_makes_intents_if_that_is_said(
    desk: Desk,
) -> None:
    plain = json.loads(desk.done(*CI, "--json"))
    written = desk.path.read_text("utf-8")  # an older program reads it
    assert "agents" not in written
    assert "coordinates" not in written

    desk.done(*CI, "--agent", "coder", "--agent", "team-*", "--agent", "coder", "--coordinator")

    shown = {
        key["id"]: (key["agents"], key["coordinates"])
        for key in json.loads(desk.done("list", "--json"))
    }
    assert shown.pop(plain["id"]) == ([], False)
    assert [*shown.values()] == [(["coder", "team-*"], True)]
    assert "coder,team-*" in desk.done("list")
    said = [(line.get("agents"), line.get("coordinates")) for line in desk.audited()]
    assert said == [(None, None), (["coder", "team-*"], True)]
    assert [key.coordinates for key in desk.file.ring().keys.values()] == [False, True]


@for_each(
    "arguments, said",
    [
        (("create", "--name", " ", "--role", "reader"), "key's name"),
        (("create", "--name", "a\nb", "--role", "reader"), "key's name"),
        ((*CI, "--tenant", "Acme"), "tenant's name"), ((*CI, "--project", " "), "project pattern"),
        ((*CI, "--agent", "a,b"), "An agent pattern"),
        (("revoke", "unknown"), "no key with this id"),
        (("rotate", "unknown"), "no key with this id"),
        ((*CI, "--keys-file", "/nonexistent/keys"), "/nonexistent/keys cannot be changed"),
        ((*CI, "--keys-file", "/proc/keys"), "/proc/keys cannot be changed"),
        ((*CI, "--db", "/proc/nowhere/memory.db"), "folder /proc/nowhere cannot be created"),
        (("list", "--keys-file", "/dev/null"), "not a key file"),
        (("list", "--keys-file", "/"), "is the root of the file system"),
        (("list", "--keys-file", "/dev/null/keys"), "cannot be read: Not a directory"),
        # What follows is no command.
        ((), "Usage: "), (("create", "--role", "writer"), "Missing option '--name'"),
        (("create", "--name", "ci"), "Missing option '--role'"),
        (("create", "--name", "ci", "--role", "boss"), "'boss' is not one of"),
        (("revoke",), "Missing argument 'ID'"),
        (("rotate", "x", "--keep-old", "1d"), "'1d' is not a duration"),
        (("reset",), "To confirm, add --open."),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_with_one_sentence(
    arguments: tuple[str, ...], said: str, desk: Desk
) -> None:
    result = desk.run(*arguments)
    assert said in result.stderr
    if result.exit_code != 2:
        assert said in desk.refusal(*arguments)
    is_usage = said.startswith(("Usage", "Missing", "To confirm", "'"))
    assert result.exit_code == (2 if is_usage else 1)
    assert not desk.path.exists()


def test_the_list_shows_the_keys_that_work_and_no_secret(desk: Desk) -> None:
    nothing = desk.run("list", "--json")
    assert (json.loads(nothing.stdout), nothing.exit_code) == ([], 0)
    assert "No key has been created" in nothing.stderr
    ended, _ = desk.made("--project", "a", "--project", "b-*")
    other, token = desk.made("--tenant", "acme")
    desk.done("revoke", ended)

    brief, full = desk.done("list"), desk.done("list", "--all")

    assert [line.split()[:5] for line in brief.splitlines()] == [
        ["ID", "NAME", "TENANT", "ROLE", "PROJECTS"],
        [other, "ci", "acme", "writer", "*"],
    ]
    since = r"revoked (just now|in \d+ \w+|\d+ \w+ ago)"
    assert re.search(rf"^{ended}  ci .* a,b-\*  .*  {since}$", full, re.MULTILINE)
    assert len({line.index("ci ") for line in full.splitlines()[1:]}) == 1
    assert token.rpartition(other)[2] not in full

    desk.done("rotate", other, "--keep-old", "1h")
    (shown,) = json.loads(desk.done("list", "--json"))
    assert (shown["id"], shown["revoked_at"]) == (other, None)
    assert shown["old_secret_until"] > shown["created_at"]
    every = json.loads(desk.done("list", "--all", "--json"))
    states = {key["id"]: key["revoked_at"] for key in every}
    assert states == {ended: desk.audited()[2]["at"], other: None}


def test_a_key_is_rotated_and_revoked_and_each_change_says_who_did_what_to_which_key(
    desk: Desk,
) -> None:
    which, first = desk.made("--tenant", "acme", "--project", "a")
    rotated = desk.run("rotate", which)
    second = rotated.stdout.strip()
    assert "The old one no longer works." in rotated.stderr
    assert (desk.opens(first), desk.opens(second)) == (False, True)

    kept = desk.run("rotate", which, "--keep-old", "100000h")
    assert re.search(r"The old one works until \d{4}-\d\d-\d\dT.*Z\.\n", kept.stderr)
    assert "works; the old secret ends in" in desk.done("list")
    assert (desk.opens(second), desk.opens(kept.stdout.strip())) == (True, True)
    assert desk.file.ring().keys.keys() == {which}

    for _ in range(2):
        assert desk.done("revoke", which) == f"Key {which} (ci) is revoked.\n"
    assert not desk.opens(second)
    assert "revoked; create another" in desk.refusal("rotate", which)

    lines = desk.audited()
    actions = ["key.created", "key.rotated", "key.rotated", "key.revoked"]
    assert [line.pop("action") for line in lines] == actions
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line.pop("at")) for line in lines)
    assert all(line.pop("by")["uid"] == os.getuid() for line in lines)
    own = {"key": which, "name": "ci", "tenant": "acme", "role": "writer", "projects": ["a"]}
    assert [own | line for line in lines] == lines
    for token in (first, second):
        assert token[17:] not in desk.audit.read_text("utf-8") + desk.path.read_text("utf-8")


def test_the_file_may_be_named_by_a_flag_or_a_variable(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other.keys"
    desk.done(*CI, "--keys-file", str(other))
    desk.done(*CI, MEMORY_KEYS_FILE=str(other))

    assert not desk.path.exists()
    assert len(KeyFile(other, desk.audit).ring().keys) == 2
    assert len(desk.audited()) == 2


def test_no_value_in_the_audit_can_look_like_another_line(desk: Desk) -> None:
    desk.db.parent.mkdir()
    text = 'a"}\n{"action": "keys.reset"}\r\u2028\udc80'

    record(desk.audit, START, "tenant.created", ADA, tenant=text)

    assert desk.audited() == [
        {"at": "2030-01-01T12:00:00Z", "action": "tenant.created", "by": ADA, "tenant": text}
    ]


def test_nothing_is_changed_that_cannot_be_audited(desk: Desk) -> None:
    which, token = desk.made()
    desk.audit.unlink()
    desk.audit.mkdir()

    assert f"audit file {desk.audit} cannot be written" in desk.refusal("revoke", which)

    assert desk.opens(token)
    assert not desk.path.with_name(f"{desk.path.name}.new").exists()
    desk.audit.rmdir()
    desk.audit.symlink_to(elsewhere := desk.db.parent / "elsewhere")
    with pytest.raises(Unavailable, match="nothing was changed"):
        record(desk.audit, START, "key.created", ADA)
    assert not elsewhere.exists()


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
        done = list(threads.map(lambda _: desk.process(*CI), range(8)))

    tokens = [process.stdout.strip() for process in done]
    assert [process.returncode for process in done] == [0] * 8
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


def test_a_full_and_a_read_only_disk_refuse_a_change_and_keep_what_was(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=64 * 1024) as folder:
        desk, filler = Desk(folder / "memory.db"), folder / "filler"
        which, token = desk.made()
        with suppress(OSError), filler.open("wb", 0) as file:
            while file.write(b"x" * 4096):
                pass

        assert "cannot be changed" in desk.refusal("revoke", which)

        assert desk.opens(token)
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        said = desk.refusal("revoke", which)
        assert f"{desk.path} cannot be changed: Read-only file system" in said
        assert desk.opens(token)
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
        desk.done("revoke", which)


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


def test_a_change_has_a_later_time_than_the_one_before_whatever_the_clock_says(desk: Desk) -> None:
    desk.made()
    tomorrow = desk.path.stat().st_mtime_ns + 86_400 * 10**9
    os.utime(desk.path, ns=(tomorrow, tomorrow))

    desk.made()

    assert desk.path.stat().st_mtime_ns == tomorrow + 1


def edited(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["keys"][0].update(fields)


SECRET = {"salt": "00" * 16, "digest": "11" * 32}


EDITS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda document: document.update(version=2), "its version cannot be used"),
    (lambda document: document.update(version=True), "its version cannot be used"),
    (lambda document: document.pop("version"), "its version cannot be used"),
    (lambda document: document.pop("keys"), "its keys cannot be used"),
    (lambda document: document.update(keys={}), "its keys cannot be used"),
    (lambda document: document.update(key=[]), "its key cannot be used"),
    (lambda document: document.update(reset_at="now"), "its reset_at cannot be used"),
    (lambda document: document["keys"].append(document["keys"][0]), "have the same id"),
    (lambda document: document["keys"].append(7), "its keys.1 cannot be used"),
    (edited(id="AMK"), "key number 1: A key's id must have 12"),
    (edited(id=None), "its keys.0.id cannot be used"),
    (edited(name=""), "key number 1: A key's name"),
    (edited(tenant="../x"), "key number 1: A tenant's name"),
    (edited(role="boss"), ": its role cannot be used"),
    (edited(projects=[]), "A project pattern must be"),
    (edited(projects=[7]), ": its projects.0 cannot be used"),
    (edited(agents="*"), ": its agents cannot be used"),
    (edited(agents=["a b"]), "An agent pattern must be"),
    (edited(agents=["a*" * 9]), "An agent pattern must be"),
    (edited(agents=[f"a{number}" for number in range(101)]), "at most 100 patterns"),
    (edited(coordinates="yes"), ": its coordinates cannot be used"),
    (edited(created_at=None), ": its created_at cannot be used"),
    (edited(revoked_at=False), ": its revoked_at cannot be used"),
    (edited(revoked=True), ": its revoked cannot be used"),
    (edited(secrets=[]), "key number 1: It has no secret"),
    (edited(secrets=[SECRET | {"salt": "00"}]), ": its secrets.0.salt cannot be used"),
    (edited(secrets=[SECRET | {"digest": "zz" * 32}]), "its secrets.0.digest cannot"),
    (edited(secrets=[SECRET | {"until": "soon"}]), ": its secrets.0.until cannot be used"),
    (edited(secrets=[SECRET | {"till": None}]), ": its secrets.0.till cannot be used"),
]


def test_a_file_that_was_edited_wrongly_is_refused_with_what_is_wrong(desk: Desk) -> None:
    which, _ = desk.made()
    whole = desk.path.read_text("utf-8")
    (secret,) = json.loads(whole)["keys"][0]["secrets"]
    for edit, said in EDITS:
        edit(document := json.loads(whole))
        desk.path.write_text(json.dumps(document))

        for command in (("list",), ("revoke", which), CI):
            refusal = desk.refusal(*command)
            sentence = rf"{desk.path} cannot be used: .*{said.replace('{id}', which)}"
            assert re.search(sentence, refusal), (said, refusal)
            assert secret["salt"] not in refusal
            assert secret["digest"] not in refusal
        assert json.loads(desk.path.read_text("utf-8")) == document


NO_DOCUMENTS = [
    (b"", "Invalid JSON: .* at line 1"), (b'{"version": 1,\n"keys": [', "Invalid JSON: .* line 2"),
    (b"\xff\xfe\xfa", "Invalid JSON"), (b'{"version": 1, "keys": "\xff"}', "Invalid JSON"),
    (b"[]", "should be an object"), (b"[" * 100_000, "recursion"),
    (b'{"version": 1' + b"0" * 5000 + b"}", "its version|Invalid JSON"),
]  # fmt: skip


def test_what_is_no_document_of_keys_is_refused_also_by_the_start(desk: Desk) -> None:
    desk.db.parent.mkdir()
    for content, said in NO_DOCUMENTS:
        desk.path.write_bytes(content)

        assert re.search(said, desk.refusal("list"))
        with pytest.raises(KeyFileRefused, match=said):
            WatchedKeys(desk.file).read()
    desk.path.write_text('{"version": 1, "keys": []}')  # a list that no reset has emptied
    assert desk.file.ring() == KeyRing(was_ever_used=True)


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


@for_each("command", ["", "create", "list", "revoke", "rotate", "reset"])
def test_help_fits_a_terminal_and_cuts_no_sentence(command: str, desk: Desk) -> None:
    shown = desk.done(*command.split(), "--help")

    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("\n")[2]
    assert command != "create" or f"[{'|'.join(Role)}]" in shown


@pytest.mark.slow
@for_each(
    "module, absent",
    [
        ("cli", r"agentops_memory\.memory\.memory|sqlite3|starlette|fcntl"),
        # A probe of a container starts the program each time, and reads the settings.
        ("settings", r"agentops_memory\.secrets.*"),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(module: str, absent: str) -> None:
    code = f"import sys, agentops_memory.{module}; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    loaded = done.stdout.split()
    assert f"agentops_memory.{module}" in loaded
    assert [it for it in loaded if re.fullmatch(absent, it)] == []
