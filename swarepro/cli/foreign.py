"""`swarepro import` and `swarepro export`: bundles from other engines' dumps, and back."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.cli.values import parse_letter_sizes
from swarepro.errors import ExitCode, UsageError


class Format(StrEnum):
    """Of a dump."""

    SAFETENSORS = "safetensors"
    NPY = "npy"
    TORCH = "torch"
    DIGESTS = "digests"


def import_(
    kind: Annotated[Format, typer.Argument(metavar="FORMAT", help="Of the dump's files.")],
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Folder of the dump, or one file.")],
    map_name: Annotated[
        str,
        typer.Option(
            "--map",
            metavar="MAP",
            help="What is what in it: a TOML file, or a map that comes with swarepro, e.g. sglang.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLE", help="Folder of the bundle; it must not exist."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="L=N,L=N",
            help="Sizes of the map's letters over all ranks, e.g. H=8,K=4,D=256.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="What the bundle says of the model, as in `run --model`, for --recv and graft.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", metavar="", help="Say what would come of it, and write nothing."),
    ] = False,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Make a bundle of another engine's dump, which every other command takes.

    Nothing in a dump is executed. All of it is looked at before anything is written: a dump that
    cannot be right is refused with the reason.

    FORMAT is safetensors, npy, torch (.pt) or digests (JSON Lines). docs/import.md is the grammar
    of a map. Exit code 2 when it is refused.
    """
    from swarepro import api
    from swarepro.report.foreign import import_document, import_report

    if check == (out is not None):
        raise UsageError(
            "give --out BUNDLE to import, or --check to look only", hint="one of the two"
        )
    with progress_on_stderr() as progress:
        result = api.import_foreign(
            kind.value,
            source,
            map_name=map_name,
            out=out,
            sizes=parse_letter_sizes(sizes),
            model=model,
            progress=progress,
        )
    emit(
        as_json=as_json,
        document=lambda: import_document(result),
        report=lambda: import_report(result),
    )
    return ExitCode.CANNOT_JUDGE if result.problems else ExitCode.NOTHING_FOUND


def export(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; it must not exist.")],
    as_json: o.AsJson = False,
) -> ExitCode:
    """Write a bundle as plain safetensors files, one a step, with an index.

    `swarepro import safetensors DIR --map swarepro` reads them back.
    """
    from swarepro import api
    from swarepro.report.foreign import export_document, export_report

    with progress_on_stderr() as progress:
        result = api.export_bundle(bundle, out, progress=progress)
    emit(
        as_json=as_json,
        document=lambda: export_document(result),
        report=lambda: export_report(result),
    )
    return ExitCode.NOTHING_FOUND
