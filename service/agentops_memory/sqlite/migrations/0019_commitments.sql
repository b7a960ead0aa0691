-- A put that meets more commitments than it fires notes the tag; steps fire the others, and remove
-- the note when none is left. What was armed after the put is not met: its id is above `newest`.

CREATE TABLE met_tags (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    space_id  INTEGER NOT NULL,
    tag       TEXT    NOT NULL,
    newest    INTEGER NOT NULL,  -- the last commitment that was armed when the tag was put
    source_id INTEGER            -- whose commitments alone are met, as it has the tag itself
) STRICT;

-- One index finds what waits for a tag, and counts what is armed of a tag and in a ref.
DROP INDEX commitments_by_tag;
CREATE INDEX commitments_by_tag ON commitments (space_id, tag) WHERE state = 'armed';
