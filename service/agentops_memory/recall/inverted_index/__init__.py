"""The full-text index of projects in memory: postings of stems, and what each adds to a score."""
