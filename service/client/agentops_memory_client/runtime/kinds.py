"""What a program gives must be of its kind: else it is told at once, by name."""


def require(name: str, given: object, kind: type) -> None:
    """TypeError if it is of another type."""
    if not isinstance(given, kind):
        raise TypeError(f"{name} must be of the type {kind.__name__}, not {type(given).__name__}.")
