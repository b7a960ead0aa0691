"""Proposals of hosts: what they may hold, how they are moved, and what is applied of them."""
