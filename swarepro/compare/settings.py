"""What two manifests say: which settings differ, and whether the generated tokens do."""

from collections.abc import Iterator
from typing import Any

import msgspec

from swarepro.bundle.schema import Manifest
from swarepro.compare.steps import phase_of, same_steps

_SHOWN = 12
_DENSE = ("dense", "dense-fp64")
_DEFAULT_DTYPE = "bf16"
"""Of a case that states none."""


def differences(baseline: Manifest, target: Manifest) -> tuple[str, ...]:
    """Return what was set otherwise, as ``"faults (none against skip-swa-allocation)"``.

    Of long lists as much is shown as tells them apart.
    """
    pairs = zip(_settings(baseline), _settings(target), strict=True)
    found = [
        f"{what} ({_against(left, right)})" for (what, left), (_, right) in pairs if left != right
    ]
    weights = weights_dtype(baseline), weights_dtype(target)
    if weights[0] != weights[1] and weights != (baseline.backend.dtype, target.backend.dtype):
        found.append(f"dtype of the weights ({weights[0]} against {weights[1]})")
    if baseline.prompts != target.prompts:
        found.append(f"prompts ({_prompts(baseline, target)})")
    return tuple(found)


def weights_dtype(manifest: Manifest) -> str:
    """Return what the weights were rounded to: a reference widens them, and is no finer."""
    computed = manifest.backend.dtype
    own = manifest.backend.engine in _DENSE and "imported" not in manifest.case
    return str(manifest.case.get("dtype", _DEFAULT_DTYPE if own else computed))


def _settings(manifest: Manifest) -> Iterator[tuple[str, str | list[str]]]:
    """Yield every setting that may explain a divergence, in the order of its weight."""
    backend, capture, case = manifest.backend, manifest.capture, manifest.case
    yield "model", manifest.model
    yield "layers of the model", str(manifest.num_layers)
    yield "dtype", backend.dtype
    yield "faults", list(manifest.faults)
    yield "stages", [f"{stage.layer_start}:{stage.layer_end}" for stage in manifest.stages]
    yield "hidden states received from", manifest.recv or "none"
    yield "chunks", _chunks(manifest)
    yield "images", _images(manifest)
    yield "batches", _batches(manifest)
    yield "lifecycle", _actions(manifest)
    yield "resets", [f"before step {step.index}" for step in manifest.steps if step.reset]
    yield "engine", backend.engine
    yield "device", backend.device
    yield "GPU", manifest.environment.gpu or "none"
    yield "route", backend.route
    yield "triton", backend.triton
    yield "schedule", backend.schedule
    yield "threads", str(backend.num_threads)
    yield "CPU", manifest.environment.cpu
    yield "torch", manifest.environment.packages.get("torch", "none")
    yield "swarepro", manifest.environment.swarepro
    yield "fill of memory that nobody wrote", backend.fill
    yield "ownership shadow", "on" if manifest.shadow else "off"
    # A case states none of these where it takes the default.
    yield "capacity", str(case.get("capacity", "default"))
    yield "SWA capacity", str(case.get("swa_capacity", "default"))
    yield "page size", str(case.get("page_size", "default"))
    yield "eviction", "on" if case.get("evict", False) else "off"
    yield "capture level", capture.level
    yield "captured points", list(capture.points)
    yield "captured layers", list(map(str, capture.layers)) or "all"
    yield "captured steps", list(map(str, capture.steps)) or "all"
    yield "store", capture.store


def _against(left: str | list[str], right: str | list[str]) -> str:
    """Return both sides; of lists that are too long to show, from where they differ on."""
    lists = [[side] if isinstance(side, str) else side for side in (left, right)]
    same = 0
    if max(map(len, lists)) > _SHOWN:
        equal = (mine == other for mine, other in zip(*lists, strict=False))
        same = next((place for place, alike in enumerate(equal) if not alike), min(map(len, lists)))
    sides = [_joined(side[same:]) or ("nothing more" if same else "none") for side in lists]
    after = f"after {same} that are the same: " if same else ""
    return f"{after}{sides[0]} against {sides[1]}"


def _chunks(manifest: Manifest) -> str:
    """Return e.g. ``"64 + 3, 2 decoded; 67"``: the rows of every session's steps."""
    prefill: dict[int, list[int]] = {}
    decoded: dict[int, int] = {}
    for step in manifest.steps:
        for span in step.spans:
            rows = prefill.setdefault(span.session, [])
            if phase_of(step, span) == "decode":
                decoded[span.session] = decoded.get(span.session, 0) + 1
            else:
                rows.append(span.end - span.start)
    return "; ".join(
        " + ".join(map(str, rows)) + (f", {decoded[session]} decoded" if session in decoded else "")
        for session, rows in sorted(prefill.items())
    )


def images_of(manifest: Manifest, session: int) -> list[tuple[int, int]]:
    """Return the half-open ranges of positions that are images of a session.

    A capture of another program may say anything of its case: what is no image is none.
    """
    sessions: Any = manifest.case.get("sessions")
    try:
        return msgspec.convert(sessions[session]["images"], list[tuple[int, int]])
    except (LookupError, TypeError, msgspec.ValidationError):
        return []


def _images(manifest: Manifest) -> list[str]:
    """Return e.g. ``["3 to 6 of session 0"]``: the positions of every image."""
    return [
        f"{first} to {end - 1} of session {session}"
        for session in range(len(manifest.prompts))
        for first, end in images_of(manifest, session)
    ]


def _batches(manifest: Manifest) -> str | list[str]:
    """Return the sessions of each step, as ``["0", "0+1 (3 steps)", "1"]``."""
    batches = [tuple(span.session for span in step.spans) for step in manifest.steps]
    if all(len(batch) == 1 for batch in batches) and batches == sorted(batches):
        return "one session after another"
    runs: list[tuple[tuple[int, ...], int]] = []
    for batch in batches:
        if runs and runs[-1][0] == batch:
            runs[-1] = batch, runs[-1][1] + 1
        else:
            runs.append((batch, 1))
    return [
        "+".join(map(str, batch)) + (f" ({many} steps)" if many > 1 else "") for batch, many in runs
    ]


def _actions(manifest: Manifest) -> list[str]:
    """Return e.g. ``["keep 0 before step 3", "reuse 32 rows of 0 for 2 before step 3"]``."""
    done = [
        f"{action.words} before step {step.index}"
        for step in manifest.steps
        for action in step.actions
    ]
    done += [f"{action.words} at the end" for action in manifest.final_actions]
    return done


def _joined(words: list[str]) -> str:
    rest = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _prompts(baseline: Manifest, target: Manifest) -> str:
    left, right = ([len(prompt) for prompt in run.prompts] for run in (baseline, target))
    if left == right:
        return "other token ids"
    return f"{' and '.join(map(str, left))} against {' and '.join(map(str, right))} tokens"


def tokens_differ(baseline: Manifest, target: Manifest) -> bool:
    """Return whether a token that both runs generated at one position differs.

    A chain without the head generates none: of a session that has none on one side, nothing is
    known. With the same steps, all tokens of a session are at the same positions; otherwise those
    of the same prompt are, as far as both go.
    """
    is_same = same_steps(baseline, target)
    sessions = zip(
        zip(baseline.prompts, baseline.tokens, strict=False),
        zip(target.prompts, target.tokens, strict=False),
        strict=False,
    )
    for (prompt, mine), (other_prompt, theirs) in sessions:
        if not mine or not theirs:
            continue
        if is_same:
            if mine != theirs:
                return True
        elif prompt == other_prompt:
            common = min(len(mine), len(theirs))
            if mine[:common] != theirs[:common]:
                return True
    return False
