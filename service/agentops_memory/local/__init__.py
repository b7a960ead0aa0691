"""The service without HTTP: the same questions and answers, on the domain in this process."""

from .service import LocalService

__all__ = ["LocalService"]
