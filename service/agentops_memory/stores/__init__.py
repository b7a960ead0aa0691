"""Memory stores in two dialects, and the rules that they share."""
