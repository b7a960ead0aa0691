"""HTTP around the protocols."""
