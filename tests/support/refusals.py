"""The codes of what is refused to whoever asks over HTTP."""

from agentops_memory.errors import Refusal

# Told at a terminal alone.
OF_COMMANDS = {"start_refused", "backup_refused", "copy_refused", "restore_refused"}


def codes() -> set[str]:
    """The code of each kind of refusal that the program has by now."""
    kinds = [Refusal]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {kind.code for kind in kinds[1:] if kind.__module__.startswith("agentops_memory.")}
    return ours - OF_COMMANDS
