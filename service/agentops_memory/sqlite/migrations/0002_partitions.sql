-- The full-text index is split into partitions, so that recall costs what a project holds and
-- not what the file does. A project has an area, a range of row numbers, in one of them; global
-- memories lie in area 0, which every partition has. Partitions are made when they are needed.

DROP TABLE memories_fts;
DROP VIEW memory_text;

ALTER TABLE spaces ADD COLUMN area INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spaces ADD COLUMN partition INTEGER;

UPDATE spaces
   SET area = numbered.area
  FROM (SELECT project, row_number() OVER (ORDER BY min(id)) AS area
          FROM spaces
         WHERE scope <> 'global'
      GROUP BY project) numbered
 WHERE numbered.project = spaces.project AND spaces.scope <> 'global';

CREATE INDEX spaces_by_area ON spaces (area, partition);

DROP INDEX memories_in_space;
CREATE INDEX memories_in_space ON memories (space_id, id) WHERE deleted_at IS NULL;

-- A short memory is found by what was said before it, too.
CREATE INDEX memories_in_session ON memories (session_id, space_id, id) WHERE deleted_at IS NULL;

CREATE TABLE partitions (
    number INTEGER PRIMARY KEY
) STRICT;

CREATE INDEX spaces_by_partition ON spaces (partition);

-- What the words of the index were made by; with other rules it is built anew.
CREATE TABLE index_rules (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    rules TEXT NOT NULL
) STRICT;

-- The index reads prepared text through this view, so that SQLite itself can
-- compare the two and rebuild the one from the other.
CREATE VIEW memory_text (id, space_id, area, partition, title, content, context, tags) AS
    SELECT m.id,
           s.id,
           s.area,
           s.partition,
           indexed_text(m.title),
           indexed_text(m.content),
           CASE WHEN borrows(m.content)
                THEN borrowed((SELECT n.content
                                 FROM memories n INDEXED BY memories_in_session
                                WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                      AND n.id < m.id AND n.deleted_at IS NULL
                             ORDER BY n.id DESC
                                LIMIT 1 OFFSET 1),
                              (SELECT n.content
                                 FROM memories n INDEXED BY memories_in_session
                                WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                      AND n.id < m.id AND n.deleted_at IS NULL
                             ORDER BY n.id DESC
                                LIMIT 1))
                ELSE ''
           END,
           indexed_tags(m.tags)
      FROM spaces s
      CROSS JOIN memories m INDEXED BY memories_in_space ON m.space_id = s.id
     WHERE m.deleted_at IS NULL;

-- The stems in titles, contents and tags, by which a misspelt word is put right.
CREATE TABLE terms (
    area   INTEGER NOT NULL,
    length INTEGER NOT NULL,
    term   TEXT    NOT NULL,
    PRIMARY KEY (area, length, term)
) STRICT, WITHOUT ROWID;
