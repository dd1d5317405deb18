"""`swarepro conclude`: derive the conclusions of a diagnosis again, from its bytes alone."""

from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.diagnose import show
from swarepro.errors import ExitCode


def conclude(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Evidence that `swarepro diagnose` left.")
    ],
    as_json: o.AsJson = False,
) -> ExitCode:
    """Check every byte of an evidence folder and derive its conclusions again.

    It needs neither a GPU nor the model. Exit codes are those of diagnose; 2, with the name, when a
    file is missing, unknown or changed, or what is written there does not follow.
    """
    from swarepro import api

    return show(api.conclude_evidence(folder), folder, as_json=as_json)
