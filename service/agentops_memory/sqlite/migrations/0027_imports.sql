-- A long import stores its rows chunk by chunk, and one that was cut off is repeated: no rows wait.
DROP TABLE import_rows;
DROP TABLE imports;
