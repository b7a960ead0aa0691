"""The description of the service as a page for people, which loads nothing from anywhere."""

from .page import Page, page

__all__ = ["Page", "page"]
