"""Memory stores: spaces whose memories are entries at paths, with versions."""
