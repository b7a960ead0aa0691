"""The programs of a document, run as a reader would run them."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from ..docs.test_docs import as_pattern, blocks

PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)


def assert_programs_print(document: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each program of the document prints what it says, with the service at the url."""
    programs = blocks(document, "python")
    assert programs
    for program in programs:
        here = program.replace("MemoryClient()", f"MemoryClient({url!r})")
        capsys.readouterr()
        exec(compile(here, document.name, "exec"), {})  # noqa: S102 - that is what it is for

        expected = PRINTED.findall(program)
        printed = [line for line, _ in groupby(capsys.readouterr().out.splitlines())]
        assert printed
        for line, pattern in zip(printed, expected, strict=True):
            assert re.fullmatch(as_pattern(pattern), line), line
