"""What is wrong with a request, field by field."""

from collections.abc import Sequence

from ...domain.errors import Invalid, Refusal


class BadFields(Invalid):
    """Fields of the body, or parameters, that are not what they should be; every one is named."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field} {said}" for field, said in faults) + ".")
        self.faults = faults


class VersionRequired(Refusal):
    """A change must say of which version it is."""

    code = "version_required"

    def __init__(self) -> None:
        super().__init__("The header If-Match must say which version is to be changed.")
