"""What commands that run a case have in common: its options, and what becomes of them."""

import inspect
from collections.abc import Callable
from typing import Any

from swarepro.cli import options as o
from swarepro.errors import ExitCode, UsageError

WHAT: dict[str, Any] = {
    "model": o.Model,
    "prompt": o.Prompt,
    "tokens": o.Tokens,
    "chunk": o.Chunk,
    "chunks": o.Chunks,
    "decode": o.Decode,
    "stages": o.Stages,
    "layers": o.Layers,
    "dtype": o.DtypeName,
    "capacity": o.Capacity,
    "swa_capacity": o.SwaCapacity,
    "page_size": o.PageSize,
    "evict": o.Evict,
}
"""Fields of `swarepro.cli.assemble.CaseOptions`."""

HOW: dict[str, Any] = {
    "fault": o.FaultNames,
    "unpatched": o.Unpatched,
    "schedule": o.Schedule,
    "device": o.Device,
    "route": o.Route,
    "ownership": o.Ownership,
    "recv": o.Recv,
    "capture": o.Capture,
    "store": o.StoreKind,
    "points": o.PointGlobs,
    "max_bundle_bytes": o.MaxBundleBytes,
}
"""Fields of `swarepro.cli.assemble.RunFlags`, where ``fault`` is ``faults``."""

_SWITCHES = ("unpatched",)


_OF_CASE = (*WHAT, "fault", "unpatched", "ownership", "recv")
"""Options that belong to what is run, which something else than CASE may say, too."""


def with_case(
    *without: str, unless: str | None = None
) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Give a command the argument CASE and the options over it, but those named ``without``.

    The command itself takes a `CaseSpec`, the `RunOptions`, and its own options by keyword.

    Args:
        without: names of options that make no sense for it.
        unless: its own option that says what is run: where that is given, the case is None, and
            CASE and what belongs to it are refused.
    """

    def decorate(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
        shared = {name: kind for name, kind in (WHAT | HOW).items() if name not in without}

        def run(**given: Any) -> ExitCode:
            from swarepro.cli.assemble import CaseOptions, RunFlags, assemble, build_options

            name = given.pop("case")
            what = {key: given.pop(key) for key in WHAT if key in shared}
            how = {key: given.pop(key) for key in HOW if key in shared}
            if unless is not None and given.get(unless) is not None:
                _refuse_case(name, what | how)
                how.pop("fault", None)
                return command(None, build_options(RunFlags(**how)), **given)
            faults = tuple(how.pop("fault", None) or ())
            flags = RunFlags(faults=faults, **how)
            spec, run_options = assemble(
                name, CaseOptions(**what), flags, receives="recv" in shared
            )
            return command(spec, run_options, **given)

        own = list(inspect.signature(command).parameters.values())[2:]
        parameters = [_parameter("case", o.CaseName, None)]
        parameters += [
            _parameter(key, kind, False if key in _SWITCHES else None)
            for key, kind in shared.items()
        ]
        parameters += [_parameter(each.name, each.annotation, each.default) for each in own]
        described: Any = run
        described.__signature__ = inspect.Signature(parameters)
        described.__annotations__ = {each.name: each.annotation for each in parameters}
        described.__name__, described.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _refuse_case(name: str | None, given: dict[str, Any]) -> None:
    """Refuse what belongs to a case where the case is said by something else."""
    told = [] if name is None else [f"CASE {name}"]
    told += [
        f"--{key.replace('_', '-')}"
        for key in _OF_CASE
        if given.get(key) not in (None, False, [], ())
    ]
    if told:
        raise UsageError(
            f"{', '.join(told)} cannot be given here: it is known what is run",
            hint="leave it out",
        )


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )
