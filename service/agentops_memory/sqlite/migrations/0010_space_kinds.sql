-- Each space says of which kind it is.

ALTER TABLE spaces ADD COLUMN kind TEXT NOT NULL DEFAULT 'project';

UPDATE spaces
   SET kind = 'store'
 WHERE project IS NULL;

-- Lists of all projects read it alone. The kind comes second: by a kind no space is looked up.
CREATE INDEX spaces_by_project ON spaces (project, kind);
