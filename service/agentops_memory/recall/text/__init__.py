"""Pure functions of text: normal forms, queries, summaries, spelling, instants and ids as text."""
