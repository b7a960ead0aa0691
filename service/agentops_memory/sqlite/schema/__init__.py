"""The schema: migrations, their plan, the upgrade of the original's file, and what a file holds."""
