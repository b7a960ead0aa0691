"""The nouns of the domain: frozen, and the same in every layer."""
