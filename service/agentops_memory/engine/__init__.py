"""The ports: what the domain requires of a storage engine, a module for each noun."""
