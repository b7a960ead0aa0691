"""The protocols: each translates between its wire and the domain, and knows no other."""
