"""A case: one reproducible piece of work, stated in one TOML file. No torch here."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from swarepro import errors
from swarepro.errors import CaseError
from swarepro.registry import did_you_mean

MOST = 2**20
"""More tokens, positions or steps than any session has: larger numbers are mistakes."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


_ERRORS = tuple(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.SwareproError)
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Case names become names of bundles."""


class _Strict(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of what a case file holds: an unknown key is an error."""


class PromptSpec(_Strict, frozen=True, kw_only=True):
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


class SessionSpec(_Strict, frozen=True, kw_only=True):
    """One conversation: prefilled in chunks, then decoded greedily, one token a step.

    Attributes:
        chunk: rows per prefill chunk; the last may be shorter.
        chunks: explicit chunk sizes instead; they must add up to the prompt.
        decode: number of decode steps after the prefill.
    """

    prompt: PromptSpec
    chunk: Positive = 64
    chunks: tuple[Positive, ...] | None = None
    decode: Count = 0


class PointRef(_Strict, frozen=True, kw_only=True):
    """A boundary that a case expects, e.g. ``{step = 0, name = "L0_kv_slice_post_write"}``."""

    step: Count
    name: str


class Expect(_Strict, frozen=True, kw_only=True):
    """What must be found in one arm of a case.

    Attributes:
        verdict: of the repeats.
        earliest_varying: earliest boundary that differs between repeats.
        first_value_varying: first value boundary that differs between repeats.
        outputs_vary: steps whose last boundary (logits or the hidden state sent on) differs between
            repeats.
        violations: kinds in the ownership report, sorted, without repetition.
        error: class of the error that the run must end with, e.g. ``"CapacityError"``.
    """

    verdict: Literal["DETERMINISTIC", "NONDETERMINISTIC"] | None = None
    earliest_varying: PointRef | None = None
    first_value_varying: PointRef | None = None
    outputs_vary: tuple[Count, ...] = ()
    violations: tuple[str, ...] = ()
    error: str | None = None


class ExpectDiff(_Strict, frozen=True, kw_only=True):
    """What `diff` of the healthy arm (baseline) and the faulty arm (target) must find.

    Attributes:
        verdict: of the comparison.
        first: earliest diverging boundary of any kind.
        first_state: earliest diverging state boundary.
        first_value: earliest diverging value boundary.
        hides_effect: the case hides on purpose what its fault claims to do to values.
    """

    verdict: Literal["IDENTICAL", "DIVERGED"]
    first: PointRef | None = None
    first_state: PointRef | None = None
    first_value: PointRef | None = None
    hides_effect: bool = False


class CaseExpect(_Strict, frozen=True, kw_only=True):
    """The proof that a case carries: silence without its fault, the finding with it."""

    healthy: Expect = Expect(verdict="DETERMINISTIC")
    faulty: Expect | None = None
    diff: ExpectDiff | None = None


class CaseSpec(_Strict, frozen=True, kw_only=True):
    """A whole case.

    Attributes:
        name: as in ``swarepro run NAME``.
        summary: one sentence.
        model: ``synthetic:NAME[?seed=N]``, ``gguf:PATH`` or ``gguf:gemma3-270m``, or a Hugging Face
            directory.
        sessions: run one after another; the runtime is reset between them.
        dtype: of weights and activations.
        stages: half-open ranges of global layer ids that tile the model, e.g. ``"0:4,4:8,8:12"``;
            None is one stage for all layers.
        layers: one half-open range to run alone, instead of ``stages``.
        capacity: positions that the full pool and the page table hold.
        swa_capacity: positions that the SWA pool holds; None is ``capacity``.
        fault: the fault whose finding this case proves.
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
    fault: str | None = None
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
    _check_expect(case, source)
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


def _check_expect(case: CaseSpec, source: str) -> None:
    """Refuse expectations that would never be looked at."""
    expect = case.expect
    for arm, wanted in (("healthy", expect.healthy), ("faulty", expect.faulty)):
        if wanted is not None and wanted.error is not None and wanted.error not in _ERRORS:
            raise CaseError(
                f"{source}: [expect.{arm}] names an unknown error {wanted.error!r}",
                hint=did_you_mean(wanted.error, _ERRORS) or f"known: {', '.join(_ERRORS)}",
            )
    if case.fault is None and (expect.faulty is not None or expect.diff is not None):
        raise CaseError(
            f"{source}: [expect.faulty] and [expect.diff] need a fault; the case names none",
            hint='add fault = "NAME"; `swarepro faults` lists them',
        )
    if case.fault is not None and expect.faulty is None:
        raise CaseError(
            f"{source}: the case names the fault {case.fault!r} and does not say what it must show",
            hint="add an [expect.faulty] table",
        )
    if expect.diff is not None:
        for arm, wanted in (("healthy", expect.healthy), ("faulty", expect.faulty)):
            if wanted is not None and wanted.error is not None:
                raise CaseError(
                    f"{source}: [expect.diff] compares two bundles, and the {arm} arm expects"
                    f" the error {wanted.error}"
                )


def _suggest_key(message: str) -> str | None:
    """Suggest a key for msgspec's "unknown field `x` - at `$.sessions[0].prompt`"."""
    match = re.search(r"unknown field `([^`]+)`(?: - at `([^`]+)`)?", message)
    if not match:
        return None
    unknown, path = match.groups()
    table = re.sub(r"\[[^]]*\]", "", path or "").rpartition(".")[2]
    known = _TABLES.get(table, CaseSpec).__struct_fields__
    return did_you_mean(unknown, known) or f"known here: {', '.join(known)}"


_TABLES: dict[str, type[_Strict]] = {
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
}
