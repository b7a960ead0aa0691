"""The document of security leaves nothing out."""

from pathlib import Path

from agentops_memory.http.edge.middleware import ALWAYS
from agentops_memory.memory.model.access import Role
from agentops_memory.secrets.redaction import KINDS

TEXT = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")


def test_every_kind_of_secret_is_documented_with_what_it_is() -> None:
    assert [kind for kind, what in KINDS.items() if f"| `{kind}` | {what} |" not in TEXT] == []


def test_every_role_is_documented() -> None:
    assert [role for role in Role if f"| `{role}` |" not in TEXT] == []


def test_every_security_header_is_documented() -> None:
    text = TEXT.lower().replace("a content security policy", "content-security-policy")

    assert [name for name, _ in ALWAYS if name.decode() not in text] == []
