"""From options to what the API takes: a case with its overrides, and how to run it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from swarepro import api
from swarepro.case import CaseSpec, PromptSpec, SessionSpec, convert_case, split_range
from swarepro.cli.options import Dtype, Store, Switch
from swarepro.cli.values import parse_chunks, parse_globs, parse_size, parse_tokens
from swarepro.errors import UsageError
from swarepro.points import Level

UNPATCHED = "skip-swa-allocation"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOptions:
    """What to run, as given on the command line; None = not given."""

    model: str | None = None
    prompt: str | None = None
    tokens: str | None = None
    chunk: int | None = None
    chunks: str | None = None
    decode: int | None = None
    stages: str | None = None
    layers: str | None = None
    dtype: Dtype | None = None
    capacity: int | None = None
    swa_capacity: int | None = None
    page_size: int | None = None
    evict: Switch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """How to run it, as given on the command line; None = not given."""

    faults: tuple[str, ...] = ()
    unpatched: bool = False
    schedule: str | None = None
    capture: Level | None = None
    store: Store | None = None
    points: str | None = None
    device: str | None = None
    route: str | None = None
    ownership: Switch | None = None
    max_bundle_bytes: str | None = None
    recv: Path | None = None


def assemble(
    name: str | None, options: CaseOptions, flags: RunFlags, *, receives: bool = True
) -> tuple[CaseSpec, api.RunOptions]:
    """Return the case to run and how to run it.

    Args:
        name: a shipped case or a TOML path; None = from options alone.
        options: what to run.
        flags: how to run it.
        receives: the command has the option --recv.

    Raises:
        UsageError: options that contradict each other, that are missing, or cannot be read.
        CaseError: no such case, or a case that cannot be read.
    """
    case = build_case(name, options)
    _check_recv(case, flags.recv, receives=receives)
    return case, build_options(flags)


def build_case(name: str | None, options: CaseOptions) -> CaseSpec:
    """Return the named case with the given options over it, or one from options alone."""
    _exclude(options, "chunk", "chunks")
    _exclude(options, "stages", "layers")
    _exclude(options, "prompt", "tokens")
    if name is None:
        case: CaseSpec | None = None
        session: SessionSpec | None = _adhoc_session(options)
    else:
        case = api.find_case(name)
        session = _session_of(case, options)
    changes = _given(options, "model", "dtype", "capacity", "swa_capacity", "page_size")
    if options.evict is not None:
        changes["evict"] = options.evict is Switch.ON
    if options.stages is not None or options.layers is not None:
        changes |= {"stages": options.stages, "layers": options.layers}
    if session is not None:
        changes["sessions"] = (session,)
    spec = (
        CaseSpec(name="adhoc", **changes)
        if case is None
        else msgspec.structs.replace(case, **changes)
    )
    return convert_case(msgspec.to_builtins(spec), source="the options")


def build_options(flags: RunFlags) -> api.RunOptions:
    """Return how to run; what was not given keeps the API's default."""
    faults = flags.faults
    if flags.unpatched and UNPATCHED not in faults:
        faults = (*faults, UNPATCHED)
    capture: dict[str, Any] = _given(flags, "store")
    if flags.capture is not None:
        capture["level"] = flags.capture
    if flags.points is not None:
        capture["points"] = parse_globs(flags.points)
    changes = _given(flags, "schedule", "device", "route", "recv")
    if flags.max_bundle_bytes is not None:
        changes["max_bundle_bytes"] = parse_size(flags.max_bundle_bytes)
    if flags.ownership is not None:
        changes["ownership"] = flags.ownership is Switch.ON
    defaults = api.RunOptions()
    return replace(defaults, faults=faults, capture=replace(defaults.capture, **capture), **changes)


def _adhoc_session(options: CaseOptions) -> SessionSpec:
    missing = []
    if options.model is None:
        missing.append("--model")
    if options.prompt is None and options.tokens is None:
        missing.append("--prompt or --tokens")
    if missing:
        raise UsageError(
            f"without a case, {' and '.join(missing)} must be given",
            hint="name a case (`swarepro cases`) or give a model and a prompt",
        )
    return _changed_session(SessionSpec(prompt=_prompt(options) or PromptSpec()), options)


def _session_of(case: CaseSpec, options: CaseOptions) -> SessionSpec | None:
    """Return the one session of ``case`` with its overrides; None when there are none."""
    names = ("prompt", "tokens", "chunk", "chunks", "decode")
    given = [f"--{name}" for name in names if getattr(options, name) is not None]
    if not given:
        return None
    if len(case.sessions) > 1 or case.script:
        raise UsageError(
            f"{', '.join(given)}: the case {case.name!r} has {_several(case)},"
            " and the option does not say what is meant",
            hint="write the sessions into a TOML file and run that",
        )
    return _changed_session(case.sessions[0], options)


def _several(case: CaseSpec) -> str:
    return "a script" if case.script else f"{len(case.sessions)} sessions"


def _changed_session(session: SessionSpec, options: CaseOptions) -> SessionSpec:
    changes: dict[str, Any] = _given(options, "decode")
    prompt = _prompt(options)
    if prompt is not None:
        changes["prompt"] = prompt
    if options.chunk is not None:
        changes |= {"chunk": options.chunk, "chunks": None}
    if options.chunks is not None:
        changes["chunks"] = parse_chunks(options.chunks)
    return msgspec.structs.replace(session, **changes)


def _prompt(options: CaseOptions) -> PromptSpec | None:
    if options.tokens is not None:
        return PromptSpec(tokens=parse_tokens(options.tokens))
    if options.prompt is None:
        return None
    try:
        options.prompt.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("--prompt is not valid UTF-8") from None
    return PromptSpec(text=options.prompt)


def _check_recv(case: CaseSpec, recv: Path | None, *, receives: bool) -> None:
    """Hidden states are received exactly where a stage does not start at layer 0."""
    begins_inside = case.layers is not None and split_range(case.layers)[0] > 0
    if recv is not None and not begins_inside:
        raise UsageError(
            "--recv needs --layers that do not start at layer 0",
            hint="a stage that starts at layer 0 receives nothing",
        )
    if begins_inside and not receives:
        raise UsageError(
            f"layers {case.layers} do not start at layer 0, and this command has no hidden states"
            " that they could receive",
            hint="choose layers that start at layer 0; `swarepro run --recv BUNDLE` runs others",
        )
    if recv is None and begins_inside:
        raise UsageError(
            f"layers {case.layers} do not start at layer 0 and --recv is not given",
            hint="name the bundle of the stage before it: --recv BUNDLE",
        )


def _exclude(options: CaseOptions, first: str, second: str) -> None:
    if getattr(options, first) is not None and getattr(options, second) is not None:
        raise UsageError(f"--{first} and --{second} exclude each other", hint="give one of them")


def _given(options: CaseOptions | RunFlags, *names: str) -> dict[str, Any]:
    """Return the named options that were given; enums as plain strings."""
    values = {name: getattr(options, name) for name in names}
    return {
        name: str(value) if isinstance(value, Dtype | Store) else value
        for name, value in values.items()
        if value is not None
    }
