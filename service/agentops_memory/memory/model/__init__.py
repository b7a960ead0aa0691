"""What an engine names of memory: the nouns, frozen, and the rows and tables that they share."""
