-- A text that a damaged file holds need not be UTF-8, and would be refused as an argument of the
-- functions that prepare it: they are given its bytes. What they answer is the same.

DROP VIEW memory_text;

CREATE VIEW memory_text (id, space_id, area, partition, title, content, context, tags) AS
    SELECT m.id,
           s.id,
           s.area,
           s.partition,
           indexed_text(CAST(m.title AS BLOB)),
           indexed_text(CAST(m.content AS BLOB)),
           CASE WHEN borrows(CAST(m.content AS BLOB))
                THEN borrowed((SELECT CAST(n.content AS BLOB)
                                 FROM memories n INDEXED BY memories_in_session
                                WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                      AND n.id < m.id AND n.deleted_at IS NULL
                             ORDER BY n.id DESC
                                LIMIT 1 OFFSET 1),
                              (SELECT CAST(n.content AS BLOB)
                                 FROM memories n INDEXED BY memories_in_session
                                WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                      AND n.id < m.id AND n.deleted_at IS NULL
                             ORDER BY n.id DESC
                                LIMIT 1))
                ELSE ''
           END,
           indexed_tags(CAST(m.tags AS BLOB))
      FROM spaces s
      CROSS JOIN memories m INDEXED BY memories_in_space ON m.space_id = s.id
     WHERE m.deleted_at IS NULL;
