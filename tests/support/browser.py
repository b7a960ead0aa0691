"""A browser over the console: Debian's Chromium, driven by Playwright."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
AXE = os.environ.get("AXE", "")
NO_AXE = "axe-core is not there: `make ui-test` gets it from npm, or AXE=path of its axe.min.js."
NO_CHROMIUM = "The browser tests need Chromium: Debian's package chromium, or CHROMIUM=path."
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

# What a page must hold to be read by anybody: WCAG 2.2 AA, and what is good practice beyond.
RUN_AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(" ")}`);
}"""


@contextmanager
def chromium() -> Iterator["Browser"]:
    """The browser; without one, who asks for it is skipped."""
    if not Path(CHROMIUM).exists():
        pytest.skip(NO_CHROMIUM)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of an extra

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page of the browser, and everything in it that went wrong."""

    page: "Page"
    url: str
    faults: list[str] = field(default_factory=list)

    def go(self, path: str) -> int:
        answer = self.page.goto(f"{self.url}{path}")
        assert answer is not None
        return int(answer.status)

    def violations(self) -> list[str]:
        """What axe-core finds. It is run beside the page, which may run no script of others."""
        if not AXE:
            pytest.skip(NO_AXE)
        self.page.evaluate(Path(AXE).read_text("utf-8"))
        found: list[str] = self.page.evaluate(RUN_AXE)
        return found

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(width))


@contextmanager
def tab(browser: "Browser", service: Service, *, key: str = "", **context: Any) -> Iterator[Tab]:
    """A tab of a fresh profile: `viewport`, `color_scheme`, `java_script_enabled`."""
    if key:
        context["http_credentials"] = {"username": "somebody", "password": key}
    profile = browser.new_context(**context)
    opened = Tab(profile.new_page(), service.url)

    def noted(message: Any) -> None:
        if message.type in ("error", "warning"):
            opened.faults.append(f"{message.type}: {message.text}")

    opened.page.on("console", noted)
    opened.page.on("pageerror", lambda error: opened.faults.append(f"failed: {error}"))
    opened.page.on("dialog", lambda dialog: opened.faults.append(f"a dialog: {dialog.message}"))
    opened.page.on("requestfailed", lambda it: opened.faults.append(f"not loaded: {it.url}"))
    try:
        yield opened
    finally:
        profile.close()
