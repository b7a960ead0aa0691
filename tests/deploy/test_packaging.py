"""What is shipped: two distributions and the image's recipe, read as they stand."""

import json
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hatchling.build import build_sdist, build_wheel

import agentops_memory
import agentops_memory_client
from agentops_memory.settings import VARIABLES, settings

from .. import MACHINE
from ..support.manifests import BASE, NOBODY, container, manifest
from ..support.service import serving

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "service" / "client"
PACKAGES = {
    "agentops_memory": ROOT / "service" / "agentops_memory",
    "agentops_memory_client": CLIENT / "agentops_memory_client",
}
VERSION = agentops_memory.__version__
PATIENCE = 300.0  # seconds for an index that is slow
NEEDED_BY_NEEDED = {
    "annotated-types", "anyio", "certifi", "h11", "httpcore", "idna", "pydantic-core", "sniffio",
    "typing-extensions", "typing-inspection",
}  # fmt: skip
LOOP = """
import asyncio, sys
from agentops_memory_client import AsyncMemoryClient, MemoryClient
from agentops_memory_client.runtime import MemorySession, WorkingMemory

async def turn(url):
    async with AsyncMemoryClient(url) as client:
        async with MemorySession(client, WorkingMemory(), project="shop") as memory:
            async with memory.turn("How long does a payment take?") as remembered:
                print("12 s" in remembered)
        print(memory.report.ended.message_count)

with MemoryClient(sys.argv[1]) as client:
    fields = {"type": "decision", "title": "Timeouts", "content": "A payment takes up to 12 s."}
    print(client.save(session_id="s", project="shop", **fields).action)
asyncio.run(turn(sys.argv[1]))
print(*(name for name in ("agentops_memory", "opentelemetry", "yaml") if name in sys.modules))
"""


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile, each instruction with what it says, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def final_stage(word: str) -> list[str]:
    """What the last stage of the Dockerfile says with this instruction."""
    lines = instructions()
    last = max(at for at, (name, _) in enumerate(lines) if name == "FROM")
    return [rest for name, rest in lines[last:] if name == word]


def image_environment() -> dict[str, str]:
    return dict(
        assignment.split("=", 1) for line in final_stage("ENV") for assignment in shlex.split(line)
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The wheel of each package."""
    folder = tmp_path_factory.mktemp("wheels")
    return {"agentops_memory": built(ROOT, folder), "agentops_memory_client": built(CLIENT, folder)}


def built(project: Path, folder: Path) -> Path:
    """The wheel of a project, made in the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        return folder / build_wheel(str(folder))


def packed(wheel: Path) -> set[str]:
    """The files of a wheel, but for what stands about it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def required(wheel: Path) -> list[str]:
    """What a wheel says that it requires without an extra."""
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    return re.findall(r"^Requires-Dist: ((?:(?!extra ==).)+)$", text, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_holds_every_source_file_and_migration_and_has_the_one_version(
    name: str, wheels: Mapping[str, Path]
) -> None:
    sources = {
        str(path.relative_to(PACKAGES[name].parent))
        for path in PACKAGES[name].rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert packed(wheels[name]) == sources
    assert any(path.endswith(".sql") for path in sources) == (name == "agentops_memory")
    folder = CLIENT if name == "agentops_memory_client" else ROOT
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["dynamic"], "version" in project) == (["version"], False)
    assert agentops_memory_client.__version__ == VERSION
    assert wheels[name].name == f"{name}-{VERSION}-py3-none-any.whl"
    needs = f"agentops-memory-client @ {CLIENT.as_uri()}" in required(wheels[name])
    assert needs == (name == "agentops_memory")


def test_no_text_names_an_extra_of_a_package_that_no_index_has() -> None:
    texts = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("service/**/*.py")]

    assert [
        it for it in texts if re.search(r"agentops-memory(-client)?\[", it.read_text("utf-8"))
    ] == []


@pytest.mark.slow
def test_a_release_requires_the_client_of_its_version(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        source = tmp_path / build_sdist(str(tmp_path))
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / source.name.removesuffix(".tar.gz")

    wheel = built(unpacked, tmp_path)

    assert not (unpacked / "service" / "client").exists()
    assert f"agentops-memory-client=={VERSION}" in required(wheel)
    assert not any("file:" in requirement for requirement in required(wheel))
    assert "file:" not in (unpacked / "PKG-INFO").read_text("utf-8").split("\n\n")[0]


@pytest.mark.slow
def test_the_client_and_the_kit_run_where_nothing_of_the_server_is(
    wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    python = str(tmp_path / "empty" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty"], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run(
        [*pip, "install", "--quiet", str(wheels["agentops_memory_client"])],
        env=MACHINE, timeout=PATIENCE, check=True,
    )  # fmt: skip
    listed = subprocess.run(
        [*pip, "list", "--format=json"], env=MACHINE, capture_output=True, check=True
    )
    with serving(tmp_path / "memory.db") as service:
        looped = subprocess.run(
            [python, "-W", "error", "-c", LOOP, service.url],
            env=MACHINE, capture_output=True, text=True, check=False,
        )  # fmt: skip

    installed = {entry["name"].lower().replace("_", "-") for entry in json.loads(listed.stdout)}
    assert installed - NEEDED_BY_NEEDED == {"agentops-memory-client", "httpx", "pydantic"}
    assert (looped.stdout.split("\n"), looped.stderr) == (["created", "True", "1", "", ""], "")


def test_licence_manifests_and_changelog_are_of_this_version() -> None:
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()

    images = manifest(BASE / "kustomization.yaml")["images"]

    assert images == [{"name": container()["image"], "newTag": agentops_memory.__version__}]

    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)

    assert newest is not None
    assert newest[1] == agentops_memory.__version__


def test_the_image_runs_the_program_as_nobody_with_its_data_in_a_volume() -> None:
    assert final_stage("ENTRYPOINT") == ['["agentops-memory"]']
    assert final_stage("CMD") == ['["serve"]']

    assert final_stage("USER") == [f"{NOBODY}:{NOBODY}"]

    (setup,) = final_stage("RUN")

    assert final_stage("VOLUME") == ["/data"]
    assert f"install -d -o {NOBODY} -g {NOBODY} /data" in setup

    (check,) = final_stage("HEALTHCHECK")

    assert check.endswith('CMD ["agentops-memory", "health"]')


def test_the_image_has_one_base_and_no_package_of_the_distribution() -> None:
    commands = " ".join(rest for word, rest in instructions() if word == "RUN")

    assert not re.search(r"\b(apt|apt-get|apk|curl|wget)\b", commands)

    environment = image_environment()

    assert environment["PYTHONDONTWRITEBYTECODE"] == environment["PYTHONUNBUFFERED"] == "1"

    bases = {rest.split()[0] for word, rest in instructions() if word == "FROM"}

    assert len(bases) == 1


def test_the_settings_of_the_image_are_the_deployments() -> None:
    environment = image_environment()
    configured = settings(environment)

    known = {variable.name for variable in VARIABLES}
    assert {name for name in environment if name.startswith("MEMORY_")} <= known
    assert configured.listen.host == ""
    assert final_stage("EXPOSE") == [str(configured.listen.port)] == ["7437"]
    assert configured.db_path == Path("/data/memory.db")
