"""``swd_128``, the digest that kernels compute on a GPU, in numpy, so that readers check it.

The definition is that of `swarepro_kernels.reference.digest`; a test holds the two together.
"""

import numpy as np
import numpy.typing as npt

_STEPS = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)
_FACTORS = (
    (0xD6E8FEB86659FD93, 0xD6E8FEB86659FD93),
    (0xBF58476D1CE4E5B9, 0x94D049BB133111EB),
)
_NAMES = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_MASK = (1 << 64) - 1


class DeviceDigest:
    """Digests the raw bytes of one tensor, piece by piece.

    Args:
        dtype: safetensors' name.
        shape: of the tensor.
    """

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self._seeds = _seeds(_NAMES[dtype], shape)
        self._sums = [0, 0]
        self._words = 0

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes; every piece but the last has a multiple of 8."""
        padded = bytes(data) + bytes(-len(data) % 8)
        words = np.frombuffer(padded, dtype="<u8")
        place = np.arange(1, words.size + 1, dtype=np.uint64) + np.uint64(self._words)
        terms = (
            _mix(words ^ place * np.uint64(_STEPS[0]), 0),
            _mix(words + place * np.uint64(_STEPS[1]), 1),
        )
        for lane, term in enumerate(terms):
            self._sums[lane] = (self._sums[lane] + int(term.sum(dtype=np.uint64))) & _MASK
        self._words += words.size

    def hexdigest(self) -> str:
        """Return 32 hex digits, lane 0 first."""
        return "".join(
            f"{_mix_word((total + seed) & _MASK, lane):016x}"
            for lane, (total, seed) in enumerate(zip(self._sums, self._seeds, strict=True))
        )


def can_digest(dtype: str) -> bool:
    """Return whether ``swd_128`` is defined for safetensors' dtype name ``dtype``."""
    return dtype in _NAMES


def _mix(words: npt.NDArray[np.uint64], lane: int) -> npt.NDArray[np.uint64]:
    half = np.uint64(32)
    for factor in _FACTORS[lane]:
        words = (words ^ words >> half) * np.uint64(factor)
    return words ^ words >> half


def _mix_word(word: int, lane: int) -> int:
    for factor in _FACTORS[lane]:
        word = ((word ^ word >> 32) * factor) & _MASK
    return word ^ word >> 32


def _seeds(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    raw = name.encode("ascii")
    words = [1, len(raw)]
    words += [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8)]
    words += [len(shape), *shape]
    seeds = []
    for lane, step in enumerate(_STEPS):
        seed = 0
        for word in words:
            seed = _mix_word(((seed + step) & _MASK) ^ word, lane)
        seeds.append(seed)
    return seeds[0], seeds[1]
