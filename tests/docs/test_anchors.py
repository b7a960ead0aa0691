"""Every link into a page leads to a heading, or an anchor, that the page has."""

import re
from pathlib import Path

from ..support.samples import for_each
from .test_docs import DOCUMENTS, FENCE, ROOT

LINK = re.compile(r"\]\((?P<page>[^)#\s]*)#(?P<anchor>[^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them of headings, and those that it names itself."""
    text = FENCE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", it).lower() for it in headings)
    made = {re.sub(r"[^\w\- ]", "", it).replace(" ", "-") for it in shown}
    return made | set(re.findall(r'<a id="([^"]+)"', text))


@for_each("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"])
def test_every_anchor_of_a_link_exists(document: Path) -> None:
    for page, anchor in LINK.findall(document.read_text("utf-8")):
        if not page.startswith("http"):
            target = document.parent / page if page else document
            assert anchor in anchors(target), f"{page}#{anchor}"
