"""The picture of a terminal in the README is of this version."""

import re
from html import unescape

import pytest

from .recording import FILE, recorded


@pytest.mark.slow
def test_the_recording_shows_what_the_commands_print_now() -> None:
    console = recorded()
    rows = re.findall(r"<text[^>]*>([^<]*)</text>", FILE.read_text("utf-8"))
    shown = "".join(unescape(row).replace("\xa0", " ").strip() for row in rows)

    for line in console.export_text().splitlines():
        assert "".join(line.split()) in "".join(shown.split()), line
