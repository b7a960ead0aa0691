"""Secrets, known by shape, label or assignment, leave a text. Pure."""
