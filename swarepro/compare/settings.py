"""What two manifests say: which settings differ, and whether the generated tokens do."""

from collections.abc import Iterator

from swarepro.bundle.schema import Manifest


def differences(baseline: Manifest, target: Manifest) -> tuple[str, ...]:
    """Return what was set otherwise, as ``"faults (none against skip-swa-allocation)"``."""
    pairs = zip(_settings(baseline), _settings(target), strict=True)
    found = [
        f"{what} ({left} against {right})" for (what, left), (_, right) in pairs if left != right
    ]
    if baseline.prompts != target.prompts:
        found.append(f"prompts ({_prompts(baseline, target)})")
    return tuple(found)


def _settings(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield every setting that may explain a divergence, in the order of its weight."""
    backend, capture, case = manifest.backend, manifest.capture, manifest.case
    yield "model", manifest.model
    yield "layers of the model", str(manifest.num_layers)
    yield "dtype", backend.dtype
    yield "faults", ", ".join(manifest.faults) or "none"
    yield "stages", ", ".join(f"{stage.layer_start}:{stage.layer_end}" for stage in manifest.stages)
    yield "hidden states received from", manifest.recv or "none"
    yield "chunks", _chunks(manifest)
    yield "device", backend.device
    yield "GPU", manifest.environment.gpu or "none"
    yield "route", backend.route
    yield "triton", backend.triton
    yield "schedule", backend.schedule
    yield "threads", str(backend.num_threads)
    # A case states neither where it takes the default.
    yield "capacity", str(case.get("capacity", "default"))
    yield "SWA capacity", str(case.get("swa_capacity", "default"))
    yield "capture level", capture.level
    yield "captured points", ", ".join(capture.points)
    yield "captured layers", ", ".join(map(str, capture.layers)) or "all"
    yield "captured steps", ", ".join(map(str, capture.steps)) or "all"
    yield "store", capture.store


def _chunks(manifest: Manifest) -> str:
    """Return e.g. ``"64 + 3, 2 decode steps; 67"``: the rows of every session's steps."""
    prefill: dict[int, list[int]] = {}
    decoded: dict[int, int] = {}
    for step in manifest.steps:
        for span in step.spans:
            rows = prefill.setdefault(span.session, [])
            if step.phase == "decode":
                decoded[span.session] = decoded.get(span.session, 0) + 1
            else:
                rows.append(span.end - span.start)
    return "; ".join(
        " + ".join(map(str, rows)) + (f", {decoded[session]} decoded" if session in decoded else "")
        for session, rows in prefill.items()
    )


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
    same_steps = baseline.steps == target.steps
    sessions = zip(
        zip(baseline.prompts, baseline.tokens, strict=False),
        zip(target.prompts, target.tokens, strict=False),
        strict=False,
    )
    for (prompt, mine), (other_prompt, theirs) in sessions:
        if not mine or not theirs:
            continue
        if same_steps:
            if mine != theirs:
                return True
        elif prompt == other_prompt:
            common = min(len(mine), len(theirs))
            if mine[:common] != theirs[:common]:
                return True
    return False
