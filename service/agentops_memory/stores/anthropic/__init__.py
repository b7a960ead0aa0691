"""Memory stores as the `anthropic` package asks for them, below `/anthropic`."""
