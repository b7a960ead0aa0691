"""Recall, of whichever engine: what is visible, how it is ranked, what was misspelt."""
