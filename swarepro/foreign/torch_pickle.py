"""What `torch.save` writes into data.pkl, read without executing any of it.

Python's unpickler calls what a file names. This reader knows the few instructions that torch.save
writes for tensors and plain data, and a fixed list of names; it calls nothing and imports nothing,
torch included. Everything else is refused by name.
"""

import pickletools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from swarepro.errors import ForeignError

MAX_PICKLE_BYTES = 1 << 20
"""Of one data.pkl: it holds shapes and tags, the numbers lie beside it."""
_MAX_DIMS = 16
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, Warning)
_STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_VALUES = frozenset(
    (
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINFLOAT"),
        *("BININT", "BININT1", "BININT2", "LONG1"),
    )
)
"""Instructions that push the value that they carry."""
_REBUILD = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3")
_PARAMETER = "torch._utils _rebuild_parameter"
_UNTYPED = "torch.storage UntypedStorage"
_PLAIN_CALLS = ("collections OrderedDict", "torch Size", "torch device")
_NAMES = {
    *_REBUILD,
    *(_PARAMETER, _UNTYPED, *_PLAIN_CALLS),
    *(f"torch {name}" for name in (*_STORAGES, *_DTYPES)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTorch:
    """A tensor as the pickle describes it; strides and offset count elements of the storage."""

    storage: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Name:
    """A global that the file names."""

    text: str


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: str | None


class _Mark:
    """Where a list of items begins on the stack."""


_MARK = _Mark()


def read_pickle(data: bytes, where: str) -> Any:
    """Return what the pickle holds: `StoredTorch` values in dicts, lists and tuples of plain data.

    Args:
        data: all of data.pkl.
        where: names it in errors.

    Raises:
        ForeignError: it names something else than tensors and plain data, or is damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the parser warns of escapes that torch never writes
            return _Reader(where).read(pickletools.genops(data))
    except _DAMAGED as error:
        raise ForeignError(f"{where}: not a pickle of tensors: {error}") from None


class _Reader:
    """A stack machine for the instructions that torch.save writes."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._steps: dict[str, Callable[[Any], None]] = {
            "GLOBAL": self._name,
            "STACK_GLOBAL": self._stack_name,
            "REDUCE": self._reduce,
            "BINPERSID": self._storage,
            "MARK": lambda _: self._stack.append(_MARK),
            "EMPTY_DICT": lambda _: self._stack.append({}),
            "EMPTY_LIST": lambda _: self._stack.append([]),
            "EMPTY_TUPLE": lambda _: self._stack.append(()),
            "NONE": lambda _: self._stack.append(None),
            "NEWTRUE": lambda _: self._stack.append(True),
            "NEWFALSE": lambda _: self._stack.append(False),
            "TUPLE": lambda _: self._stack.append(tuple(self._to_mark())),
            "TUPLE1": lambda _: self._tuple(1),
            "TUPLE2": lambda _: self._tuple(2),
            "TUPLE3": lambda _: self._tuple(3),
            "APPEND": lambda _: self._append([self._stack.pop()]),
            "APPENDS": lambda _: self._append(self._to_mark()),
            "SETITEM": lambda _: self._set([self._stack.pop(-2), self._stack.pop()]),
            "SETITEMS": lambda _: self._set(self._to_mark()),
            "MEMOIZE": lambda _: self._memo.update({len(self._memo): self._stack[-1]}),
        }

    def read(self, instructions: Iterator[tuple[Any, Any, int | None]]) -> Any:
        for opcode, argument, _ in instructions:
            name = opcode.name
            if name == "STOP":
                return self._stack.pop()
            if name in self._steps:
                self._steps[name](argument)
            elif name in ("BINPUT", "LONG_BINPUT"):
                self._memo[argument] = self._stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                self._stack.append(self._memo[argument])
            elif name in ("PROTO", "FRAME"):
                continue
            elif name in _VALUES:
                self._stack.append(argument)
            else:
                raise ForeignError(
                    f"{self._where}: the pickle has the instruction {name}, which no tensor needs;"
                    " nothing of it was executed"
                )
        raise ValueError("it is cut")

    def _name(self, text: str) -> None:
        if text not in _NAMES:
            raise ForeignError(
                f"{self._where}: the pickle names {text.replace(' ', '.')!r}, which is neither a"
                " tensor nor plain data; nothing of it was executed",
                hint="save tensors, numbers and strings only, in lists and dicts",
            )
        self._stack.append(_Name(text))

    def _stack_name(self, _: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._name(f"{module} {name}")

    def _storage(self, _: Any) -> None:
        kind, storage, key, _place, _count = self._stack.pop()
        if kind != "storage" or not isinstance(key, str) or not isinstance(storage, _Name):
            raise ValueError("a persistent id that is no storage")
        dtype = None
        if storage.text != _UNTYPED:
            dtype = _STORAGES[storage.text.removeprefix("torch ")]
        self._stack.append(_Storage(key, dtype))

    def _reduce(self, _: Any) -> None:
        arguments, called = self._stack.pop(), self._stack.pop()
        if not isinstance(called, _Name) or not isinstance(arguments, tuple):
            raise ValueError("a call of something that is no name")
        if called.text in _REBUILD:
            self._stack.append(_tensor(arguments))
        elif called.text == _PARAMETER:
            self._stack.append(arguments[0])
        elif called.text == "collections OrderedDict":
            self._stack.append({})
        elif called.text in _PLAIN_CALLS:
            self._stack.append(None)  # of no use here
        else:
            raise ValueError(f"a call of {called.text!r}")

    def _append(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise ValueError("an append to something that is no list")
        target.extend(items)

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise ValueError("a key of something that is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):
                raise ValueError("a key that is neither a string nor an integer")
            target[key] = value

    def _tuple(self, length: int) -> None:
        if len(self._stack) < length:
            raise ValueError("a tuple of more than there is")
        items = self._stack[-length:]
        del self._stack[-length:]
        self._stack.append(tuple(items))

    def _to_mark(self) -> list[Any]:
        items: list[Any] = []
        while self._stack[-1] is not _MARK:
            items.append(self._stack.pop())
        self._stack.pop()
        return items[::-1]


def _tensor(arguments: tuple[Any, ...]) -> StoredTorch:
    storage, offset, shape, stride, *_ = arguments
    dtype = storage.dtype
    if len(arguments) > 6:  # version 3 says the dtype itself
        dtype = _DTYPES[arguments[6].text.removeprefix("torch ")]
    numbers = (offset, *shape, *stride)
    if dtype is None or len(shape) != len(stride) or not all(type(x) is int for x in numbers):
        raise ValueError("a tensor whose shape, strides or dtype are no such thing")
    if len(shape) > _MAX_DIMS or any(not 0 <= number < 1 << 48 for number in numbers):
        raise ValueError(f"a tensor of shape {str(shape)[:80]}, strides {str(stride)[:80]}")
    return StoredTorch(
        storage=storage.key, dtype=dtype, offset=offset, shape=tuple(shape), stride=tuple(stride)
    )
