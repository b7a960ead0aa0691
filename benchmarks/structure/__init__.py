"""The size of the service's sources, and how they import each other. Nothing of them is run."""
