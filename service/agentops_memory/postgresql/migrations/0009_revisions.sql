-- A memory has no row here until its first change, and one whose past is not kept never has.
DELETE FROM revisions WHERE memory_id IN (SELECT memory_id FROM agent_memories);
