-- The stems of an area have keys by which they are found, instead of an index by two first letters.
-- The background sweep stores the areas again; until then they are loaded memory by memory.
DELETE FROM area_stems;
