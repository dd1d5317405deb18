"""`swarepro synth`: write a synthetic model to disk."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.errors import ExitCode
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.words import count, literal, size


def synth(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="E.g. gemma4-tiny, gemma3-tiny?seed=1.")
    ],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to write; it must not exist or be empty.")
    ],
    shards: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Safetensors shards with an index; else one file."),
    ] = None,
    dtype: Annotated[o.Dtype, typer.Option(help="Of the tensors.")] = o.Dtype.BF16,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Write a synthetic model as a Hugging Face directory."""
    from swarepro import api

    files = api.write_synthetic_model(name, directory, shards=shards, dtype=dtype.value)
    sizes = [path.stat().st_size for path in files]
    emit(
        as_json=as_json,
        document=lambda: {
            "directory": str(directory),
            "files": [
                {"path": str(path), "num_bytes": num}
                for path, num in zip(files, sizes, strict=True)
            ],
        },
        report=lambda: Report(
            headline=f"Wrote {literal(name)}: {count(len(files), 'file')}, {size(sum(sizes))}.",
            tone=Tone.GOOD,
            grids=(
                Grid(
                    title="",
                    columns=("file", ">size"),
                    rows=tuple(
                        (literal(path), size(num)) for path, num in zip(files, sizes, strict=True)
                    ),
                ),
            ),
            commands=(
                shlex.join(
                    ["swarepro", "run", "--model", literal(directory), "--tokens", "2,3,5,7"]
                ),
            ),
        ),
    )
    return ExitCode.NOTHING_FOUND
