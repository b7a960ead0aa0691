"""The page of the API: Swagger UI, whose files come with the build, shows /openapi.json."""

from collections.abc import Mapping
from pathlib import Path

from starlette.responses import FileResponse

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Told, not guessed: with `nosniff` a browser runs no script of another type.
TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}


def page(status: int) -> FileResponse:
    answer = file(HERE / "page.html", status)
    answer.headers["Content-Security-Policy"] = POLICY
    return answer


def loaded() -> Mapping[str, Path]:
    """The files that the page loads, by their paths."""
    names = ("swagger-ui.css", "index.css", "swagger-ui-bundle.js")
    return {"/docs/page.js": HERE / "page.js"} | {
        f"/docs/{name}": HERE / "viewer" / name for name in names
    }


def file(path: Path, status: int = 200) -> FileResponse:
    return FileResponse(path, status, media_type=TYPES[path.suffix])
