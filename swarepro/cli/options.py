"""The options that commands share, each declared once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from swarepro.points import Level


class Dtype(StrEnum):
    """Of weights and activations."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class Store(StrEnum):
    """What a bundle keeps of a captured tensor."""

    DIGEST = "digest"
    TENSOR = "tensor"


class EngineName(StrEnum):
    """What computes a run."""

    PAGED = "paged"
    DENSE = "dense"
    DENSE_FP64 = "dense-fp64"


class Switch(StrEnum):
    """Of something that is on unless it is switched off."""

    ON = "on"
    OFF = "off"


class Align(StrEnum):
    """How the boundaries of two runs are matched."""

    STEP = "step"
    POSITION = "position"


_WHAT = "What to run"
_HOW = "How to run it"
_KEEP = "What to capture and keep"

CaseName = Annotated[
    str | None,
    typer.Argument(metavar="CASE", help="A shipped case (`swarepro cases`) or a TOML file."),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="synthetic:NAME, gguf:PATH, gguf:gemma3-270m, or a Hugging Face directory.",
        rich_help_panel=_WHAT,
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Prompt text, for the model's tokenizer.", rich_help_panel=_WHAT
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option(
        metavar="IDS",
        help="Prompt as token ids: 2,818,5279 or @ids.json (a JSON list).",
        rich_help_panel=_WHAT,
    ),
]
Chunk = Annotated[
    int | None,
    typer.Option(min=1, metavar="ROWS", help="Rows of a prefill chunk.", rich_help_panel=_WHAT),
]
Chunks = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS,ROWS",
        help="Every chunk's rows; they add up to the prompt.",
        rich_help_panel=_WHAT,
    ),
]
Decode = Annotated[
    int | None,
    typer.Option(min=0, metavar="STEPS", help="Greedy decode steps.", rich_help_panel=_WHAT),
]
Stages = Annotated[
    str | None,
    typer.Option(
        metavar="RANGES",
        help="Stages that tile the layers, chained in one process: 0:4,4:8,8:12.",
        rich_help_panel=_WHAT,
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(metavar="RANGE", help="One stage alone: 0:4.", rich_help_panel=_WHAT),
]
Recv = Annotated[
    Path | None,
    typer.Option(
        metavar="BUNDLE",
        help="For --layers that do not start at 0: the run whose last boundary they receive.",
        rich_help_panel=_WHAT,
    ),
]
FaultNames = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="NAME",
        help="Inject a known defect (`swarepro faults`); repeatable, the first is innermost.",
        rich_help_panel=_HOW,
    ),
]
Unpatched = Annotated[
    bool,
    typer.Option(
        "--unpatched",
        metavar="",
        help="The same as --fault skip-swa-allocation.",
        rich_help_panel=_HOW,
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        metavar="ORDER",
        help="Order of a store's concurrent programs: program (default) or seeded:N.",
        rich_help_panel=_HOW,
    ),
]
DtypeName = Annotated[
    Dtype | None,
    typer.Option("--dtype", help="Of weights and activations.", rich_help_panel=_HOW),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="DEVICE", help="auto (default), cpu or cuda.", rich_help_panel=_HOW),
]
Route = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Attention implementation (`swarepro doctor`), by default auto.",
        rich_help_panel=_HOW,
    ),
]
Capacity = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="POSITIONS",
        help="Of the full pool and the page table.",
        rich_help_panel=_HOW,
    ),
]
SwaCapacity = Annotated[
    int | None,
    typer.Option(min=1, metavar="POSITIONS", help="Of the SWA pool.", rich_help_panel=_HOW),
]
PageSize = Annotated[
    int | None,
    typer.Option(min=1, max=64, metavar="SLOTS", help="Of both pools.", rich_help_panel=_HOW),
]
Evict = Annotated[
    Switch | None,
    typer.Option(
        help="Free SWA slots that no later query sees; by default as the case says.",
        rich_help_panel=_HOW,
    ),
]
Ownership = Annotated[
    Switch | None,
    typer.Option(
        help="Watch who owns and who uses every KV slot, by default on, where there are slots.",
        rich_help_panel=_HOW,
    ),
]
Capture = Annotated[
    Level | None,
    typer.Option(help="How much to capture, by default op.", rich_help_panel=_KEEP),
]
StoreKind = Annotated[
    Store | None,
    typer.Option(
        "--store",
        help="Keep tensors (default), or only their digests.",
        rich_help_panel=_KEEP,
    ),
]
PointGlobs = Annotated[
    str | None,
    typer.Option(
        "--points",
        metavar="GLOBS",
        help="Capture only these points (`swarepro points`): L0_*,logits.",
        rich_help_panel=_KEEP,
    ),
]
MaxBundleBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Refuse a bundle estimated to be larger before it runs; by default 2GiB.",
        rich_help_panel=_KEEP,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", metavar="", help="Print one JSON document on stdout, nothing else."),
]
