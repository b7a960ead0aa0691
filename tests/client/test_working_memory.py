"""The working memory of an agent goes on where it was, and its file is whole at every moment."""

import dataclasses
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from agentops_memory_client import Message
from agentops_memory_client.runtime import (
    ChatMessage,
    CheckpointError,
    ToolCall,
    Unsent,
    WorkingMemory,
)
from agentops_memory_client.runtime.working_memory import read, write

from ..support.agent_memory import call, calls, conversations, result
from ..support.files import disk
from ..support.forks import Forked
from ..support.samples import examples

EXAMPLES = examples(50)

texts = st.text(st.characters(exclude_categories=()), max_size=8)  # halves of characters, too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
objects = st.dictionaries(texts, values, max_size=3)
unsent = st.builds(
    Unsent, operation=st.sampled_from(["start_session", "append_messages", "save", "end_session"]),
    fields=objects, key=texts, trace=st.dictionaries(texts, texts, max_size=2),
)  # fmt: skip
spoken = st.builds(Message, role=texts, content=texts)
called = st.builds(ToolCall, id=texts, name=texts, arguments=objects)
told = st.builds(ChatMessage.assistant, texts, st.lists(called, max_size=2))

ASKED = ChatMessage.user("What time is it?")
WHOLE = json.loads(WorkingMemory([ASKED, calls("a")], session_id="s1").snapshot())


def fields(memory: WorkingMemory) -> dict[str, object]:
    names = {it.name for it in dataclasses.fields(memory)} - {"is_recorded"}
    return {name: getattr(memory, name) for name in names}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states") / "agent.json"


@pytest.mark.slow
@EXAMPLES
@given(conversations, st.lists(told, max_size=2), objects, objects, st.data())
@example([], [], {"both halves": "\ud83d\ude00", "a number": 10**4000}, {}, None)
def test_what_is_restored_is_what_was_stored(
    path: Path, messages: list[ChatMessage], more: list[ChatMessage], extra: dict[str, Any],
    metadata: dict[str, Any], data: st.DataObject | None,
) -> None:  # fmt: skip
    memory = WorkingMemory(messages, tool_metadata=metadata, extra=extra)
    memory.add(*more)
    if data:
        memory.session_id = data.draw(texts.filter(str.strip))
        memory.turn, memory.sequence = data.draw(st.tuples(*2 * [st.integers(0, 2**70)]))
        memory.unsent = data.draw(st.lists(unsent, max_size=2))
        memory.pending = data.draw(st.lists(spoken, max_size=2))

    memory.checkpoint(path)

    assert fields(WorkingMemory.restore(path)) == fields(memory)
    assert not WorkingMemory.restore(path).is_recorded


def test_a_new_one_has_a_session_of_its_own_and_nothing_else() -> None:
    one, other = WorkingMemory(), WorkingMemory()

    assert one.session_id != other.session_id
    assert fields(one) == {
        "session_id": one.session_id, "turn": 0, "sequence": 0, "messages": (),
        "tool_metadata": {}, "extra": {}, "unsent": [], "pending": [],
    }  # fmt: skip
    one.extra["groups"] = ["a"]
    taken = one.snapshot()  # which is of its moment
    one.extra["groups"].append("b")
    assert json.loads(taken)["extra"] == {"groups": ["a"]}


def test_messages_are_added_all_or_none_and_gather_only_for_a_session() -> None:
    memory, wrong = WorkingMemory([ASKED]), {"role": "user", "content": "And?"}
    memory.add(ASKED)
    assert memory.pending == []
    memory.is_recorded = True

    with pytest.raises(TypeError, match=r"^A message must be a ChatMessage, not dict\.$"):
        memory.add(ASKED, wrong)  # type: ignore[arg-type]
    assert (memory.messages, memory.pending) == ((ASKED, ASKED), [])

    memory.add(ChatMessage.system("Be brief."), calls("a"), ChatMessage.assistant(" "))
    assert memory.unanswered() == (call("a"),)
    memory.add(result("a"))
    assert memory.unanswered() == ()
    assert [it.role for it in memory.pending] == ["assistant", "tool"]


def test_what_is_known_of_a_call_goes_when_the_call_does() -> None:
    metadata = {"a": 1, "b": 2, "c": 3, "not called yet": 4}
    memory = WorkingMemory(
        [ASKED, calls("a"), result("a"), calls("b"), ASKED, calls("c", "b")], tool_metadata=metadata
    )

    dropped = memory.trim_to_token_budget(0)

    assert dropped == (ASKED, calls("a"), result("a"), calls("b"), ASKED)
    assert memory.messages == (calls("c", "b"),)
    assert memory.tool_metadata == {"b": 2, "c": 3, "not called yet": 4}
    assert metadata["a"] == 1
    assert memory.trim_to_token_budget(0) == ()


def test_to_resume_is_to_begin_where_nothing_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    with pytest.raises(FileNotFoundError, match=r"agent\.json"):
        WorkingMemory.restore(path)

    memory = WorkingMemory.resume(path)
    memory.turn = 3
    memory.checkpoint(str(path))

    assert fields(WorkingMemory.resume(str(path))) == fields(memory)


def deep(levels: int) -> Any:
    return {"in": deep(levels - 1)} if levels else None


class Round(list[Any]):
    def __init__(self) -> None:
        self.append(self)


NO_ID = "session_id: A session_id must be text of 1 to 500 characters, and not blank."
NO_JSON = "input was not a valid JSON value."
TOO_DEEP = "Recursion error - maximum validation depth exceeded."
UNSTORED: list[tuple[Any, str]] = [  # as `extra`, unless the sentence names another field
    ({"groups": [1, 2, {3}]}, f"extra.groups.list.2: {NO_JSON}"),
    ({"agent": object}, f"extra.agent: {NO_JSON}"),
    ({"pair": (1, 2)}, f"extra.pair: {NO_JSON}"),
    ({"by name": {1: "one"}}, "extra.by name.dict.1.[key]: Input should be a valid string."),
    ({"score": float("nan")}, "Out of range float values are not JSON compliant"),
    ({"a": [10**5000]}, "Exceeds the limit"),
    (deep(300), f"extra{'.in.dict' * 20}"[:120] + f": {TOO_DEEP}"),
    ({"r": Round()}, "extra.r.list.0.list.0: Recursion error - cyclic reference detected."),
    ({"a-1": {"at": {1}}}, f"tool_metadata.a-1.dict.at: {NO_JSON}"),
    ("3", "turn: Input should be a valid integer."),
    (True, "turn: Input should be a valid integer."),
    (-1, "turn: Input should be greater than or equal to 0."),
    (-1, "sequence: Input should be greater than or equal to 0."), (" ", NO_ID), (None, NO_ID),
    ([], "extra: Input should be a valid dictionary."),
]  # fmt: skip


def test_what_could_not_be_restored_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    WorkingMemory(turn=1).checkpoint(path)
    changing = {"path": ["/a"]}
    sought = ToolCall(id="a", name="Read", arguments=changing)
    sought.arguments["path"].append(Path())
    cases = [
        *(((re.match(r"\w+: |\w+\.", sentence) or ["extra."])[0][:-1].rstrip(":"), value, sentence)
          for value, sentence in UNSTORED),
        ("messages", [ASKED, ChatMessage.assistant("", [sought])],
         f"messages.1.tool_calls.0.arguments.path.list.1: {NO_JSON}"),
    ]  # fmt: skip
    for name, value, sentence in cases:
        memory = WorkingMemory()
        setattr(memory, name, value)
        with pytest.raises(CheckpointError) as refusal:
            memory.checkpoint(path)
        assert str(refusal.value).startswith(f"The working memory cannot be stored: {sentence}")

    for levels in range(200, 300):  # what is stored, at any depth, can be restored
        memory = WorkingMemory()
        memory.extra = deep(levels)
        with suppress(CheckpointError):
            memory.checkpoint(tmp_path / "deep.json")
            assert WorkingMemory.restore(tmp_path / "deep.json").extra == memory.extra
    assert WorkingMemory.restore(path).turn == 1
    assert sorted(it.name for it in tmp_path.iterdir()) == ["agent.json", "deep.json"]


def changed(**fields: Any) -> bytes:
    return json.dumps(WHOLE | fields).encode()


MESSAGE = WHOLE["messages"][0]
CALL = WHOLE["messages"][1]["tool_calls"][0]
UNREAD = [
    (b"", "Expecting value: line 1 column 1 (char 0)"),
    (changed()[:-1], "Expecting ',' delimiter: line 1 column {at} (char {char})"),
    (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    (b"[" * 200_000, "maximum recursion depth exceeded"),
    *((it, "It is not an agentops-memory working memory of version 1.")
      for it in (b"{}", b"[]", changed(format="another"), changed(version=2))),
    (changed(turn=1.0), "turn: Input should be a valid integer."),
    (changed(sequence=None), "sequence: Input should be a valid integer."),
    (changed(extra=deep(300)), f"extra{'.in.dict' * 20}"[:120] + f": {TOO_DEEP}"),
    (changed(tool_metadata="a"), "tool_metadata: Input should be a valid dictionary."),
    (changed(messages={}), "messages: Input should be a valid tuple."),
    (changed(messages=[MESSAGE, 7]),
     "messages.1: Input should be a dictionary or an instance of ChatMessage."),
    (changed(messages=[MESSAGE | {"role": "robot"}]),
     "messages.0.role: Input should be 'system', 'user', 'assistant' or 'tool'."),
    (changed(messages=[MESSAGE | {"role": "tool"}]),
     "messages.0: Exactly the messages with the role tool must have a tool_call_id."),
    (changed(messages=[MESSAGE | {"content": None}]),
     "messages.0.content: Input should be a valid string."),
    (changed(messages=[MESSAGE | {"role": "tool", "tool_call_id": 7}]),
     "messages.0.tool_call_id: Input should be a valid string."),
    (changed(messages=[{"role": "assistant", "tool_calls": [CALL | {"name": 7}]}]),
     "messages.0.tool_calls.0.name: Input should be a valid string."),
    (changed(unsent=[{"operation": "steal", "fields": {}, "key": "k"}]),
     ("unsent.0.operation: Input should be 'start_session', 'append_messages', 'save' or "
      "'end_session'.")),
    (changed(unsent=[{"operation": "save", "fields": {}, "key": "k", "trace": {"a": 1}}]),
     "unsent.0.trace.a: Input should be a valid string."),
    (changed(unsent=[{"operation": "save", "fields": {}}]), "unsent.0.key: Field required."),
    (changed(pending=[{"role": "user"}]), "pending.0.content: Field required."),
]  # fmt: skip


def test_what_is_no_checkpoint_is_told_with_its_path(path: Path) -> None:
    for document, reason in UNREAD:
        path.write_bytes(document)
        with pytest.raises(CheckpointError) as refusal:
            WorkingMemory.resume(path)
        told = reason.format(at=len(document) + 1, char=len(document))
        assert str(refusal.value).startswith(f"The checkpoint {path} cannot be read: {told}")
        assert path.read_bytes() == document


def test_a_document_has_its_format_and_version() -> None:
    document = WorkingMemory([ASKED, calls("a")], session_id="s1").snapshot()
    calling = {"role": "assistant", "tool_calls": [{"id": "a", "name": "Bash"}]}

    assert json.loads(document) == {
        "format": "agentops-memory working memory", "version": 1, "session_id": "s1",
        "messages": [{"role": "user", "content": ASKED.content}, calling],
    }  # fmt: skip


def test_an_id_that_the_service_would_not_take_is_refused_at_once() -> None:
    for session_id in ("", " ", "x" * 501, 7):
        with pytest.raises(ValueError, match="session_id"):
            WorkingMemory(session_id=session_id)  # type: ignore[arg-type]
    assert WorkingMemory(session_id="x" * 500).session_id == "x" * 500


KIBIBYTE = 1024


def names(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


@pytest.mark.slow
def test_a_process_killed_at_any_line_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "states" / "agent.json"
    path.parent.mkdir()

    call = f"killing.at_each_line(pathlib.Path({str(path)!r}))"
    code = f"import pathlib; from tests.support import killing; {call}"
    process = Forked(code, [], {}, cwd=tmp_path)
    with process.stdout, process.stderr:
        turns, complained = process.stdout.read().split(), process.stderr.read()
        assert process.wait(60.0) == 0, complained

    assert turns == sorted(turns)
    assert set(turns) == {"1", "2"}
    assert turns.count("1") > 12


def test_what_is_written_is_on_disk_before_it_counts_and_its_owner_alone_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, fsync = tmp_path / "agent.json", [], os.fsync
    path.write_text("old")
    path.chmod(0o644)

    def noted(file: int) -> None:
        synced.append((Path(f"/proc/self/fd/{file}").readlink().name, read(path)))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    write(path, b"new")

    (draft, *before), *after = synced
    assert re.fullmatch(r"\.agent\.json\.\w{8}\.part", draft)
    assert (before, after) == ([b"old"], [(tmp_path.name, b"new")])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    folder, link = tmp_path / "volume", tmp_path / "agent.json"
    folder.mkdir()
    link.symlink_to(Path("volume") / "state.json")

    for document in (b"first", b"second"):
        write(link, document)

        assert (folder / "state.json").read_bytes() == read(link) == document
    assert (names(tmp_path), names(folder)) == (["agent.json", "volume"], ["state.json"])
    assert link.is_symlink()


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    folder, busy = tmp_path / "folder", tmp_path / "busy.json"
    (folder / "in it").mkdir(parents=True)
    write(busy, b"old")

    for path in (folder, tmp_path / "missing" / "agent.json", Path("/"), busy / "a"):
        with pytest.raises(OSError, match=r"Not a regular file|No such file|Not a directory"):
            write(path, b"new")

    assert names(tmp_path) == ["busy.json", "folder"]
    assert read(busy) == b"old"


def test_a_full_disk_leaves_the_old_state_and_no_litter(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=256 * KIBIBYTE) as folder:
        path = folder / "agent.json"
        memory = WorkingMemory(turn=1)
        memory.checkpoint(path)
        memory.extra["large"] = "x" * 512 * KIBIBYTE

        with pytest.raises(OSError, match="No space left"):
            memory.checkpoint(path)

        assert WorkingMemory.restore(path).extra == {}
        assert names(folder) == ["agent.json"]
        memory.extra["large"] = "x" * 64 * KIBIBYTE
        memory.checkpoint(path)
        assert WorkingMemory.restore(path).extra == memory.extra


def test_writers_of_one_path_leave_the_whole_state_of_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    documents = [bytes([letter]) * 100_000 for letter in b"abcd"]
    write(path, documents[0])

    def many(document: bytes) -> list[bytes]:
        found = []
        for _ in range(25):
            write(path, document)
            found.append(read(path))
        return found

    with ThreadPoolExecutor(len(documents)) as threads:
        found = [it for mine in threads.map(many, documents) for it in mine]
    assert set(found) <= set(documents)
    assert names(tmp_path) == ["agent.json"]


def test_what_is_no_ordinary_file_is_neither_replaced_nor_waited_for(tmp_path: Path) -> None:
    pipe, plug, link = (tmp_path / name for name in ("pipe", "socket", "link"))
    os.mkfifo(pipe)
    os.mknod(plug, stat.S_IFSOCK)
    link.symlink_to(pipe)

    for path in (pipe, plug, link):
        with pytest.raises(OSError, match="Not a regular file"):
            write(path, b"new")
        with pytest.raises(OSError, match="Not a regular file"):
            read(path)

    assert (pipe.is_fifo(), plug.is_socket()) == (True, True)
    assert names(tmp_path) == ["link", "pipe", "socket"]
