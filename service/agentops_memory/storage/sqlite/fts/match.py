"""A query as FTS5 reads it: every term quoted, so that none of it is syntax."""

from collections.abc import Iterable, Sequence

from ....domain.text.query import Piece, Term


def all_of(pieces: Iterable[Piece]) -> str:
    """Matches where every piece is."""
    return " AND ".join(f"({_piece(piece)})" for piece in pieces)


def any_of(terms: Iterable[Term]) -> str:
    """Matches where any term is."""
    return " OR ".join(map(_term, terms))


def in_columns(columns: Sequence[str], match: str) -> str:
    """The same in these columns alone."""
    return f"{{{' '.join(columns)}}} : ({match})"


def _piece(piece: Piece) -> str:
    parts = " AND ".join(map(_term, piece.parts))
    joined = any_of(piece.joined)
    return f"({parts}) OR {joined}" if parts and joined else parts or joined


def _term(term: Term) -> str:
    return f'"{term.text}" *' if term.starts else f'"{term.text}"'
