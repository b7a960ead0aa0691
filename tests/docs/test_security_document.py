"""The document of security leaves nothing out."""

from pathlib import Path

from agentops_memory.http.middleware import ALWAYS
from agentops_memory.memory.access import Role
from agentops_memory.secrets.redaction import KINDS

TEXT = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")


def test_every_kind_of_secret_role_and_header_is_documented() -> None:
    assert [kind for kind, what in KINDS.items() if f"| `{kind}` | {what} |" not in TEXT] == []

    assert [role for role in Role if f"| `{role}` |" not in TEXT] == []

    text = TEXT.lower().replace("a content security policy", "content-security-policy")

    assert [name for name, _ in ALWAYS if name.decode() not in text] == []
