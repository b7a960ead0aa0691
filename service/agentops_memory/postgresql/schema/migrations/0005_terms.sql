-- What a misspelt word may have meant is told by the postings.
DROP TABLE terms;
