"""A dump that could be right: a tiny residual network in numpy, and the map that reads it."""

from pathlib import Path

import numpy as np

from swarepro.foreign.importing import check_dump, import_dump, open_dump
from swarepro.foreign.load_map import read_map
from swarepro.foreign.results import ImportResult
from swarepro.options import no_progress

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 3, 8, 4, 2, 4, 5

HEADER = """
engine = "tiny"
[sizes]
H = 4
K = 2
D = 4
"""
RULES = {
    "input_ids": 'name = "s{step}.ids"',
    "positions": 'name = "s{step}.pos"',
    "L{layer}_input_normed": 'name = "s{step}.l{layer}.norm"',
    "L{layer}_qkv_projected": 'name = "s{step}.l{layer}.qkv"',
    "L{layer}_attention_output": 'name = "s{step}.l{layer}.attn"\nlayout = "T (H D)"',
    "L{layer}_mlp_output": 'name = "s{step}.l{layer}.mlp"',
    "after_layer_{layer}": 'name = "s{step}.l{layer}.out"\nplane = "residual"',
    "logits": 'name = "s{step}.logits"',
    "token": 'name = "s{step}.token"',
}


def map_text(rules: dict[str, str] | None = None, *, header: str = HEADER, tail: str = "") -> str:
    """Return a map of these rules, by point."""
    parts = [
        f'[[points]]\npoint = "{point}"\n{body}\n'
        for point, body in (RULES if rules is None else rules).items()
    ]
    return "\n".join([header, *parts, tail])


def tiny_run(*rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return what a run over steps of these many rows dumps, by name, float32 and int64."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(1, 0.3, (LAYERS, WIDTH)).astype(np.float32)
    found: dict[str, np.ndarray] = {}
    start = 0
    for step, count in enumerate(rows):
        found[f"s{step}.ids"] = rng.integers(0, 99, count)
        found[f"s{step}.pos"] = np.arange(start, start + count)
        start += count
        hidden = rng.normal(size=(count, WIDTH)).astype(np.float32)
        for layer in range(LAYERS):
            at = f"s{step}.l{layer}"
            scale = np.sqrt((hidden.astype(np.float64) ** 2).mean(-1, keepdims=True))
            found[f"{at}.norm"] = (hidden / scale * weights[layer]).astype(np.float32)
            qkv = rng.normal(size=(count, (HEADS + 2 * KV_HEADS) * HEAD_DIM))
            found[f"{at}.qkv"] = qkv.astype(np.float32)
            attended = rng.normal(size=(count, HEADS * HEAD_DIM)).astype(np.float32)
            found[f"{at}.attn"] = attended
            mlp = rng.normal(size=(count, WIDTH)).astype(np.float32)
            found[f"{at}.mlp"] = mlp
            hidden = hidden + attended[:, :WIDTH] + mlp
            found[f"{at}.out"] = hidden
        found[f"s{step}.logits"] = rng.normal(size=(1, VOCABULARY)).astype(np.float32)
        found[f"s{step}.token"] = rng.integers(0, 99, 1)
    return found


def save_npy(tensors: dict[str, np.ndarray], folder: Path) -> Path:
    """Write one npy file a tensor and return the folder."""
    folder.mkdir(exist_ok=True)
    for name, array in tensors.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def write_map(folder: Path, text: str | None = None) -> Path:
    """Write a map and return its path."""
    path = folder / "map.toml"
    path.write_text(map_text() if text is None else text, encoding="utf-8")
    return path


def check(source: Path, text: str | None = None, *, kind: str = "npy") -> ImportResult:
    """Do what ``swarepro import --check`` does."""
    rules = read_map(write_map(source.parent, text))
    return check_dump(open_dump(kind, source, rules), progress=no_progress)


def bring(source: Path, out: Path, text: str | None = None, *, kind: str = "npy") -> ImportResult:
    """Do what ``swarepro import`` does."""
    rules = read_map(write_map(source.parent, text))
    return import_dump(open_dump(kind, source, rules), out, progress=no_progress)
