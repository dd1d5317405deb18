"""A case: one reproducible piece of work, stated in one TOML file. No torch here."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from swarepro.errors import CaseError
from swarepro.expect import (
    MOST,
    BaselineSpec,
    CaseExpect,
    Count,
    Expect,
    ExpectDiff,
    ExpectFill,
    ExpectFloor,
    PointRef,
    RowsRef,
    Strict,
    ToleranceSpec,
    ViolationRef,
    check_expect,
)
from swarepro.images import check_images
from swarepro.registry import did_you_mean

Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
DEFAULT_CHUNK = 64
PageSize = Annotated[int, msgspec.Meta(ge=1, le=64)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Case names become names of bundles."""


class PromptSpec(Strict, frozen=True, kw_only=True):
    """The prompt of one session; exactly one field is set.

    Attributes:
        tokens: token ids.
        random: this many token ids drawn with ``seed``.
        text: encoded by the checkpoint's tokenizer.
        seed: goes with ``random``.
    """

    tokens: tuple[TokenId, ...] | None = None
    random: Positive | None = None
    text: str | None = None
    seed: Seed = 0


class SessionSpec(Strict, frozen=True, kw_only=True):
    """One conversation: prefilled in chunks, then decoded greedily, one token a step.

    In a case with a script, the script says what is computed when: chunks and decode steps are
    not given here.

    Attributes:
        chunk: rows per prefill chunk, None = 64; the last may be shorter.
        chunks: explicit chunk sizes instead; they must add up to the prompt.
        decode: number of decode steps after the prefill.
        images: ``[FIRST, END]`` for every image: positions from the first to the one before the end
            see each other, whatever their order.
    """

    prompt: PromptSpec
    chunk: Positive | None = None
    chunks: tuple[Positive, ...] | None = None
    decode: Count = 0
    images: tuple[tuple[Count, Count], ...] = ()


class RowsSpec(Strict, frozen=True, kw_only=True):
    """What one session computes in a step of a script; exactly one of the two is set.

    Attributes:
        session: place in ``sessions``.
        prefill: this many further rows of the prompt.
        decode: one token.
    """

    session: Count
    prefill: Positive | None = None
    decode: bool = False


class ReuseSpec(Strict, frozen=True, kw_only=True):
    """A new session takes over the prefix of one that was finished and kept.

    Attributes:
        session: the new one; nothing of it has run.
        of: the kept one; nothing of it remains.
        rows: positions ``[0, rows)`` are taken over; a multiple of the page size.
    """

    session: Count
    of: Count
    rows: Positive


class ScriptEntry(Strict, frozen=True, kw_only=True):
    """One line of a script; exactly one of ``rows``, ``finish``, ``reuse`` and ``reset`` is set.

    Attributes:
        rows: one forward pass over a batch: chunks and decoded tokens of several sessions.
        times: the forward pass is repeated; only with ``rows`` that all decode.
        finish: these sessions end; their slots are freed.
        keep: with ``finish``: their slots stay for a later ``reuse``, until they are needed.
        reuse: a prefix is taken over.
        reset: the pools are zeroed and every session is forgotten.
    """

    rows: tuple[RowsSpec, ...] = ()
    times: Positive = 1
    finish: tuple[Count, ...] = ()
    keep: bool = False
    reuse: ReuseSpec | None = None
    reset: bool = False


class CaseSpec(Strict, frozen=True, kw_only=True):
    """A whole case.

    Attributes:
        name: as in ``swarepro run NAME``.
        summary: one sentence.
        model: ``synthetic:NAME[?seed=N]``, ``gguf:PATH`` or ``gguf:gemma3-270m``, or a Hugging Face
            directory.
        sessions: with a ``script`` they run as it says, else one after another, and the runtime
            is reset between them.
        dtype: of weights and activations.
        stages: half-open ranges of global layer ids that tile the model, e.g. ``"0:4,4:8,8:12"``;
            None is one stage for all layers.
        layers: one half-open range to run alone, instead of ``stages``.
        capacity: positions that the full pool and the page table hold.
        swa_capacity: positions that the SWA pool holds; None is ``capacity``.
        page_size: slots of a page of either pool; both capacities are multiples of it.
        evict: whether SWA slots of positions that no later query can see are freed.
        script: steps of several sessions; without one the sessions run one after another.
        fault: the fault whose finding this case proves.
        background: faults in both arms: what an engine does that is harmless by itself.
        repeats: of `swarepro cases run`.
        expect: what must be found.
    """

    name: str
    summary: str = ""
    model: str
    sessions: tuple[SessionSpec, ...]
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    stages: str | None = None
    layers: str | None = None
    capacity: Positive = 512
    swa_capacity: Positive | None = None
    page_size: PageSize = 1
    evict: bool = False
    script: tuple[ScriptEntry, ...] = ()
    fault: str | None = None
    background: tuple[str, ...] = ()
    repeats: Positive = 6
    expect: CaseExpect = CaseExpect()


def load_case(path: Path) -> CaseSpec:
    """Read and check one case file. Raises CaseError naming file, key and what was wanted."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"cannot read the case {path}: {error}") from None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise CaseError(f"{path} is not valid TOML: {error}") from None
    return convert_case(data, source=str(path))


def convert_case(data: dict[str, Any], *, source: str) -> CaseSpec:
    """Turn parsed TOML into a `CaseSpec`; ``source`` names it in errors."""
    try:
        case = msgspec.convert(data, CaseSpec)
    except msgspec.ValidationError as error:
        raise CaseError(f"{source}: {error}", hint=_suggest_key(str(error))) from None
    _check(case, source)
    return case


def _check(case: CaseSpec, source: str) -> None:
    if not _NAME.fullmatch(case.name):
        raise CaseError(
            f"{source}: the name {case.name!r} cannot name a folder",
            hint="use letters, digits, '.', '_' and '-', beginning with a letter or digit",
        )
    if not case.sessions:
        raise CaseError(f"{source}: a case needs at least one [[sessions]] table")
    if case.stages is not None and case.layers is not None:
        raise CaseError(f"{source}: stages and layers exclude each other")
    check_expect(case.expect, case.fault, source)
    if case.layers is not None:
        split_range(case.layers)
    for index, session in enumerate(case.sessions):
        prompt = session.prompt
        given = [key for key in ("tokens", "random", "text") if getattr(prompt, key) is not None]
        if len(given) != 1:
            raise CaseError(
                f"{source}: sessions[{index}].prompt needs exactly one of tokens, random and text;"
                f" found {', '.join(given) or 'none'}"
            )
        if case.script and (session.decode or session.chunks or session.chunk):
            raise CaseError(
                f"{source}: sessions[{index}] has chunks or decode steps, and the case a script,"
                " which says what is computed when"
            )
        check_images(session.images, where=f"{source}: sessions[{index}]")
        if prompt.tokens is not None and not prompt.tokens:
            raise CaseError(f"{source}: sessions[{index}].prompt.tokens is empty")


def split_range(text: str) -> tuple[int, int]:
    """Split ``"4:8"`` into ``(4, 8)``; CaseError unless it is a range that holds a layer."""
    match = re.fullmatch(r"\s*([0-9]{1,6}):([0-9]{1,6})\s*", text)
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise CaseError(f"not a layer range: {shown!r}", hint="write START:END, e.g. 0:4")
    start, end = int(match[1]), int(match[2])
    if start >= end:
        raise CaseError(f"layer range {text!r} is empty", hint="write START:END, e.g. 0:4")
    return start, end


def _suggest_key(message: str) -> str | None:
    """Suggest a key for msgspec's "unknown field `x` - at `$.sessions[0].prompt`"."""
    match = re.search(r"unknown field `([^`]+)`(?: - at `([^`]+)`)?", message)
    if not match:
        return None
    unknown, path = match.groups()
    table = re.sub(r"\[[^]]*\]", "", path or "").rpartition(".")[2]
    known = _TABLES.get(table, CaseSpec).__struct_fields__
    return did_you_mean(unknown, known) or f"known here: {', '.join(known)}"


_TABLES: dict[str, type[Strict]] = {
    "sessions": SessionSpec,
    "prompt": PromptSpec,
    "expect": CaseExpect,
    "healthy": Expect,
    "faulty": Expect,
    "diff": ExpectDiff,
    "earliest_varying": PointRef,
    "first_value_varying": PointRef,
    "first": PointRef,
    "first_state": PointRef,
    "first_value": PointRef,
    "first_nonfinite": PointRef,
    "first_violation": ViolationRef,
    "value_rows": RowsRef,
    "fill": ExpectFill,
    "baseline": BaselineSpec,
    "within": ToleranceSpec,
    "floor": ExpectFloor,
    "script": ScriptEntry,
    "rows": RowsSpec,
    "reuse": ReuseSpec,
}
