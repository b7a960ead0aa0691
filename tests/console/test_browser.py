"""The console in a real browser: each view at three widths, in two colors, with and without script.

Nothing fails in it, nothing breaks its policy, anybody can read it, and a keyboard is enough.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..support.browser import Tab, chromium, tab
from ..support.callers import made_key
from ..support.pages import NAMES, PROMPT, VIEWS, seed, seed_documents
from ..support.service import Service, lasting_with, serving

pytest.importorskip(
    "playwright.sync_api", reason="The browser tests need the extra `ui`: make ui-test installs it."
)
if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

WIDTHS = (360, 768, 1440)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as opened:
        yield opened


service = lasting_with(seed)


@pytest.fixture(scope="module")
def views(service: Service) -> list[str]:
    return [*VIEWS, *seed_documents(service)]


@pytest.mark.representative(14)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("view", range(len(NAMES)), ids=NAMES)
def test_a_view_is_whole_and_for_anybody(
    browser: "Browser", service: Service, views: list[str], view: int, width: int, scheme: str
) -> None:
    size: Any = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    is_missing = "nowhere" in views[view] or "erasures" in views[view]
    with tab(browser, service, **size) as opened:
        assert opened.go(views[view]) == (404 if is_missing else 200)
        assert opened.overflow() == 0
        assert opened.violations() == []
        assert opened.page.locator("h1").count() == 1
        assert opened.page.locator("#hostile").count() == 0
        assert [it for it in opened.faults if not is_missing] == []
    with tab(browser, service, java_script_enabled=False, **size) as opened:
        opened.go(views[view])
        assert opened.overflow() == 0
        assert opened.page.locator("h1").count() == 1
        assert [it for it in opened.faults if not is_missing] == []


@pytest.mark.parametrize("has_script", [True, False])
def test_forms_work_in_a_browser_with_and_without_script(
    browser: "Browser", service: Service, has_script: bool
) -> None:
    with tab(browser, service, java_script_enabled=has_script) as opened:
        page = opened.page
        opened.go("/ui/memories/3")
        page.get_by_role("button", name="Pin", exact=True).click()
        assert "Pinned." in page.get_by_role("status").inner_text()
        page.get_by_role("button", name="Unpin").click()
        page.get_by_role("link", name="Edit").click()
        page.get_by_label("Title").fill(f"Invoices, {has_script}")
        page.get_by_role("button", name="Save").click()
        assert page.get_by_role("heading", level=1).inner_text() == f"Invoices, {has_script}"
        assert page.locator("ins").first.is_visible()
        opened.go("/ui/memories?project=shop&type=pattern")
        page.get_by_role("checkbox").first.check()
        page.get_by_label("Tag to add or remove").fill("fridays")
        page.get_by_role("button", name="Preview for the selected").click()
        assert "1 of 1 would change" in page.get_by_role("status").inner_text()
        page.get_by_role("button", name="Add a tag, 1 memory").click()
        assert "1 of 1 changed" in page.get_by_role("status").inner_text()
        assert opened.faults == []
    service.http.patch("/observations/9", json={"tags": ["couriers"]}).raise_for_status()
    for memory in service.http.get("/observations/recent?tag=fridays").json():
        service.http.patch(f"/observations/{memory['id']}", json={"tags": ["couriers"]})


def test_a_browser_signs_in_with_a_key_as_password(browser: "Browser", path: Path) -> None:
    with serving(path) as closed:
        seed(closed)
        key = made_key(closed.path, "writer")
        with tab(browser, closed, key=key) as opened:
            assert opened.go("/ui/memories/1") == 200
            opened.page.get_by_role("button", name="Unpin").click()
            assert "No longer pinned." in opened.page.get_by_role("status").inner_text()
            assert "writer" in opened.page.locator(".who").inner_text()
            assert opened.page.get_by_role("link", name="Erase it for good").count() == 0


def pressed_until(opened: Tab, wanted: str, most: int = 80) -> None:
    """Press Tab until what has the focus is called so; each stop must be visible."""
    for _ in range(most):
        opened.page.keyboard.press("Tab")
        name, is_visible = opened.page.evaluate(
            """() => {
              const it = document.activeElement;
              const label = it.labels && it.labels.length ? it.labels[0].innerText : "";
              const box = it.getBoundingClientRect();
              const outline = getComputedStyle(it).outlineStyle;
              return [(it.getAttribute("aria-label") || label || it.innerText || "").trim(),
                      box.width > 0 && outline !== "none"];
            }"""
        )
        assert is_visible, name
        if name.startswith(wanted):
            return
    raise AssertionError(wanted)


def test_a_keyboard_is_enough_to_ask_and_to_put_a_memory_right(
    browser: "Browser", service: Service
) -> None:
    with tab(browser, service) as opened:
        keyboard, page = opened.page.keyboard, opened.page
        opened.go("/ui/ask")
        pressed_until(opened, "Skip to content")
        keyboard.press("Enter")
        pressed_until(opened, "Prompt")
        keyboard.type(PROMPT)
        pressed_until(opened, "Project")
        keyboard.type("shop")
        pressed_until(opened, "Ask")
        keyboard.press("Enter")
        page.wait_for_url("**/ui/ask?query=*")
        pressed_until(opened, "Orders wait in a queue")
        keyboard.press("Enter")
        page.wait_for_url("**/ui/memories/2")
        pressed_until(opened, "Edit")
        keyboard.press("Enter")
        page.wait_for_url("**/edit")
        pressed_until(opened, "Title")
        keyboard.press("ControlOrMeta+A")
        keyboard.type("Orders wait in one of two queues")
        pressed_until(opened, "Save")
        keyboard.press("Enter")
        page.wait_for_url("**/ui/memories/2?done=saved")
        pressed_until(opened, "Pin")
        keyboard.press("Space")
        page.wait_for_url("**/ui/memories/2?done=pin")
        assert opened.faults == []
    body = {"title": "Orders wait in a queue", "pinned": False}
    service.http.patch("/observations/2", json=body).raise_for_status()


def test_a_keyboard_is_enough_to_review(browser: "Browser", path: Path) -> None:
    with serving(path) as service, tab(browser, service) as opened:
        seed(service)
        page, keyboard = opened.page, opened.page.keyboard

        def pressed(key: str) -> object:
            keyboard.press(key)
            return page.evaluate("document.activeElement.id")

        opened.go("/ui/review")
        lines = page.locator(".lines > li")
        first = lines.count()
        pressed_until(opened, "To the first line.")
        keyboard.press("Enter")
        keyboard.press("c")
        page.wait_for_url("**/ui/review?done=confirm*")
        assert lines.count() < first
        assert [pressed(key) for key in "kjjkd"] == [f"line-{it}" for it in (1, 2, 3, 2, 2)]
        page.get_by_role("button", name="Newer supersedes").nth(1).focus()
        keyboard.press("s")
        page.wait_for_url("**/ui/review?done=newer*")
        assert pressed("x") == f"line-{lines.count()}"  # has no such button, and is the last one
        pressed_until(opened, "Older supersedes")
        keyboard.press("Enter")
        page.wait_for_url("**/ui/review?done=older*")
        assert "There is nothing to decide" in page.inner_text("main")
        assert opened.faults == []
