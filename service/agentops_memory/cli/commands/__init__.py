"""A command, or a family of commands, in each module."""
