-- A long import stores its rows in chunks, and an interrupted one is repeated: no rows are staged.
DROP TABLE import_rows;
DROP TABLE imports;
