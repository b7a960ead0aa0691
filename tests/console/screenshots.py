"""The pictures of the console for the README: `python -m tests.console.screenshots` makes them."""

import tempfile
from pathlib import Path

from ..support.browser import chromium, tab
from ..support.pages import PROMPT, seed
from ..support.service import serving

FOLDER = Path(__file__).parents[2] / "docs"
PICTURES = {
    "console-ask.png": (f"/ui/ask?project=shop&limit=3&max_tokens=140&query={PROMPT}", "light"),
    "console-memory.png": ("/ui/memories/1", "dark"),
}
SIZE = {"width": 1200, "height": 1320}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "memory.db") as service,
        chromium() as browser,
    ):
        seed(service, is_hostile=False)
        for name, (path, scheme) in PICTURES.items():
            with tab(browser, service, viewport=SIZE, color_scheme=scheme) as opened:
                opened.go(path)
                opened.page.screenshot(path=FOLDER / name)


if __name__ == "__main__":
    main()
