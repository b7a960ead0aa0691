"""What was written is on the disk."""

import os
from pathlib import Path


def sync(file_or_folder: Path) -> None:
    """Wait until the file's contents, or the folder's names, survive a power cut."""
    descriptor = os.open(file_or_folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
