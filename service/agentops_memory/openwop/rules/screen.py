"""The screen of what hosts write: secrets are rewritten, in each form that they have (SR-1)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...memory.model.memory import Text
from ...memory.redactor import Redactor
from ...secrets.assignments import MARK
from ...secrets.redaction import LONGEST_NAME, VALUE
from ..model.entries import RefDraft

MAX_CONTENT = 65_536  # bytes of UTF-8
LONGEST_TAG = 256  # code points

# A reference to a secret that a host resolves; its other marker; and keys in the shape of
# OpenAI's, which for this protocol may be shorter than elsewhere.
_RESOLVED = re.compile(r"\[BYOK:[^\]]*\]")
_MARKED = re.compile(r"<REDACTED:([^>]*)>")
_KEY = re.compile(r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Screen:
    """Rewrites what one request writes; what it counts, its redactor has counted."""

    redactor: Redactor

    def text(self, text: str) -> str:
        """The text without secrets; it may be longer than it was."""
        clean, found = marked(self.redactor.whole(text))
        if not found:
            return clean
        self.redactor.kinds[VALUE] += found
        return self.redactor.whole(clean)  # what a marker completes

    def changes(self, name: str) -> bool:
        """Whether a name holds a secret."""
        return Screen(Redactor(self.redactor.rules)).text(name) != name

    def draft(self, draft: RefDraft) -> RefDraft:
        """The entry without secrets, within its limits."""
        content, tags = self.content(draft.content), self.tags(draft.tags)
        return replace(draft, content=content, tags=tags)

    def content(self, content: str) -> str:
        """The content without secrets, at most as long as one can be."""
        clean = self.text(content)
        if clean == content:
            return content
        return clean.encode()[:MAX_CONTENT].decode(errors="ignore")

    def tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        """The tags without secrets, each once."""
        return tuple(dict.fromkeys(self.text(tag)[:LONGEST_TAG] for tag in tags))


def marked(text: str) -> tuple[str, int]:
    """The text with our markers in place of what a host has for secrets, and how many."""
    found = 0
    for pattern, kind in _FORMS:
        text, times = pattern.subn(kind, text)
        found += times
    return text, found


def screened(redactor: Redactor, text: Text) -> Text:
    """The text of an entry's memory without secrets."""
    screen = Screen(redactor)
    return replace(text, content=screen.content(text.content), tags=screen.tags(text.tags))


def _named(found: re.Match[str]) -> str:
    return f"{MARK}{_UNSAFE.sub('-', found[1])[:LONGEST_NAME] or 'value'}]"


_FORMS = (
    (_RESOLVED, f"{MARK}byok]"),
    (_MARKED, _named),
    (_KEY, f"{MARK}openai-key]"),
)
