"""What spans say."""

from ..telemetry import Cut

Attributes = dict[str, str | int | float | bool | Cut | None]
