"""The part of the full-text index that queries ask for again and again, in memory."""
