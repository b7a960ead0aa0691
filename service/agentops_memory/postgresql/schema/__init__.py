"""The schemas, and how they are brought up to date."""
