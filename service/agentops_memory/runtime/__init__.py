"""What an agent loop needs beside its model: working memory, memories in the prompt, tool hooks.

Imports nothing but the client.
"""
