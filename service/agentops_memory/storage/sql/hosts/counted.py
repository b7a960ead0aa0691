"""SQL that takes back what a pass has counted, from all that has counted it since."""

# A number that is damaged does not get beyond what can be added up.
_DEEPEST = 100  # passes over passes; a damaged link could go round for ever
_SEEN = "min(max({0}seen, 0), 1 << 31)"
_COUNTED = f"""WITH RECURSIVE counted (id, seen, depth) AS (
                  SELECT newer_id, {_SEEN.format("")}, 0
                    FROM ref_supersessions
                   WHERE pass = :pass AND ended_after IS NULL AND seen > 0
                   UNION ALL
                  SELECT x.newer_id, counted.seen, counted.depth + 1
                    FROM counted
                    JOIN ref_supersessions x ON x.older_id = counted.id
                   WHERE x.ended_after IS NULL AND x.seen > 0 AND counted.depth < {_DEEPEST}),
              sums (id, seen) AS (SELECT id, sum(seen) FROM counted GROUP BY id)"""
UNCOUNTED = (
    f"""{_COUNTED}
        UPDATE memories
           SET duplicates = max(min(memories.duplicates, 1 << 53) - sums.seen, 1)
          FROM sums
         WHERE memories.id = sums.id""",
    f"""{_COUNTED}
        UPDATE ref_supersessions
           SET seen = max({_SEEN.format("ref_supersessions.")} - sums.seen, 1)
          FROM sums
         WHERE older_id = sums.id AND ended_after IS NULL AND ref_supersessions.seen > 0""",
)
