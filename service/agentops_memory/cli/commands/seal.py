"""`seal`: the keys that encrypt confidential values of agents' memory."""

import json

import click

from ...engine.files import make_folder
from ...memory.model.access import OPERATOR
from ...operations.files.seals import SealFile
from ..catalog import group
from ..errors import file_errors
from ..invocation import now
from ..options import json_option, setting_options
from ..output import counted
from ..place import place_of


@group()
def seal() -> None:
    """Look after the keys that encrypt confidential values.

    They lie in a file beside the database, made with the first such value. Without
    it nothing of these can be read any more: keep a copy, as `backup` does.
    """


@seal.command(short_help="Encrypt with a new key from now on.")
@setting_options("db_path", "seal_file")
@json_option()
def rotate(as_json: bool, **files: str | None) -> None:
    """Add a key, which encrypts from now on, also in a service that is running.

    What older keys have encrypted still opens, so they stay in the file. An entry gets
    the new key when it is next changed.
    """
    with file_errors():
        place = place_of(files)
        path = place.settings.seal_file
        make_folder(path.parent)
        file = SealFile(path, now)
        key = file.rotate(lambda id_: place.audit(OPERATOR, "seal.rotated", key=id_))
        count = len(file.keys().keys)
    if as_json:
        click.echo(json.dumps({"key": key, "keys": count}))
    else:
        click.echo(f"The key {key} encrypts from now on; {path} has {counted(count, 'key')}.")
