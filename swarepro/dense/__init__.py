"""A dense reference: the same weights and tokens, contiguous keys and values, no pool."""

from swarepro.dense.engine import run_dense

__all__ = ["run_dense"]
