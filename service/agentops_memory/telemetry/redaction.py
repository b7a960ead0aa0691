"""Secrets stay out of what leaves: every text of a span, an event or a log line."""

from contextvars import ContextVar

from ..domain.secrets.redaction import DEFAULT_RULES, Rules

_rules: ContextVar[Rules] = ContextVar("what is taken out of what leaves", default=DEFAULT_RULES)


def hide_by(rules: Rules) -> None:
    """Let these rules hold for what the current request says from now on."""
    _rules.set(rules)


def hidden(text: str) -> str:
    """The text without secrets, by the rules of the current request."""
    return _rules.get().redacted(text).text
