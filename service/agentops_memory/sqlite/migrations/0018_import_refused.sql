-- Supersessions that an import had to leave out: whoever applies a step counts them.
ALTER TABLE imports ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
