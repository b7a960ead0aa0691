"""The commands; each module has one, or several related ones."""
