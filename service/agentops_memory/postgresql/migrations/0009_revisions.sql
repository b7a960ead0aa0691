-- A memory has no revision before its first change, and none at all if its past is not kept.
DELETE FROM revisions WHERE memory_id IN (SELECT memory_id FROM agent_memories);

-- Pods of the previous release, which expect the first revision and store its text at the first
-- change, may serve next to pods of this release, or after them. This trigger stores it for them.
CREATE FUNCTION keep_first_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM revisions WHERE memory_id = OLD.id) THEN
        RETURN NULL;
    END IF;
    IF OLD.updated_at = NEW.updated_at AND OLD.deleted_at IS NOT DISTINCT FROM NEW.deleted_at THEN
        -- An older state is imported: its revision takes the number of the current state.
        INSERT INTO revisions (memory_id, number, deed, at)
        VALUES (OLD.id, NEW.revision, 'created', coalesce(OLD.deleted_at, OLD.updated_at));
    ELSE
        INSERT INTO revisions (memory_id, number, deed, at, type, title, content, tags)
        VALUES (OLD.id, OLD.revision, 'created', coalesce(OLD.deleted_at, OLD.updated_at),
                OLD.type, OLD.title, OLD.content, OLD.tags);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER memory_revised AFTER UPDATE OF revision ON memories
    FOR EACH ROW WHEN (NEW.revision > OLD.revision AND OLD.session_id IS NOT NULL)
    EXECUTE FUNCTION keep_first_revision();
