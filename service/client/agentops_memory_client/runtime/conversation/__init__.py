"""The conversation of an agent with its model: messages, their tokens, and trimming."""
