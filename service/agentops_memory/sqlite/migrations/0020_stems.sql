-- The stems of what the full-text index holds of each memory, as they are loaded into memory:
-- lines of packed counts in hexadecimal digits, with the stems that have them. Derived; a memory
-- without a row is given one in the background.
CREATE TABLE memory_stems (
    memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    stems     TEXT    NOT NULL
) STRICT;

-- Each transaction that changes anything leaves another token, by which a process knows whether
-- what it holds in memory is as of now.
CREATE TABLE database_state (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    token INTEGER NOT NULL
) STRICT;

INSERT INTO database_state (one, token) VALUES (1, random());

-- Its versions told what the token tells.
ALTER TABLE partitions DROP COLUMN version;
