"""What was written is on the disk."""

import os
from errno import EEXIST
from pathlib import Path


def sync(file_or_folder: Path) -> None:
    """Wait until the file's contents, or the folder's names, survive a power cut."""
    descriptor = os.open(file_or_folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def named(draft: Path, name: Path) -> None:
    """Move what is ready to a name, on disk when this returns; FileExistsError if that is taken."""
    try:
        name.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError:  # a file system without such links
        if os.path.lexists(name):
            raise FileExistsError(EEXIST, os.strerror(EEXIST), str(name)) from None
        draft.rename(name)
    else:
        draft.unlink()
    sync(name.parent)
