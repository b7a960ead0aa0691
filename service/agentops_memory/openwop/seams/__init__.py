"""Routes that a conformance suite drives, over the services that hosts use; off unless told."""
