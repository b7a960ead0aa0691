"""The console at /ui: pages for people, over the operations that REST and agents use."""
