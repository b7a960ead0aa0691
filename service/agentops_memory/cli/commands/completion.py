"""`completion`: what makes a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

from ..catalog import command
from ..errors import NAME

VARIABLE = "_AGENTOPS_MEMORY_COMPLETE"  # in which the shell asks


@command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands and options.

    \b
    bash, in ~/.bashrc:  eval "$(agentops-memory completion bash)"
    zsh, in ~/.zshrc:    eval "$(agentops-memory completion zsh)"
    fish: agentops-memory completion fish > ~/.config/fish/completions/agentops-memory.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has one for each choice
    click.echo(kind(context.find_root().command, {}, NAME, VARIABLE).source())
