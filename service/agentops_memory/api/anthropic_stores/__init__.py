"""Memory stores as the `anthropic` package asks for them, below `/anthropic`."""

from .handlers import AnthropicStores

__all__ = ["AnthropicStores"]
