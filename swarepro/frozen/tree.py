"""What a graph of objects knows, as plain data: to be digested, saved, and filled in again.

A node is a JSON value. Scalars stand for themselves; everything else is a one-key object that
says what it is. Nothing of it is ever executed: filling in sets the fields of objects that are
there, and makes new ones of swarepro's own classes by setting their fields alone.
"""

import functools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from swarepro.errors import BundleError

Node = Any
_ROUTES = "swarepro.runtime.routes."
_OPAQUE = object()
_SCALARS = (bool, int, float, str)
_OPAQUE_TYPES = (
    *(torch.dtype, torch.device),
    *(FunctionType, MethodType, BuiltinFunctionType, functools.partial),
)
"""What parts refer to and cannot change: it is not described, and stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTree:
    """A graph as data.

    Attributes:
        root: its node.
        tensors: that nodes refer to by index, as they are: not copied.
    """

    root: Node
    tensors: tuple[torch.Tensor, ...]


def describe(root: object, *, shared: Sequence[object]) -> StateTree:
    """Return what ``root`` and all that it refers to know.

    Args:
        root: the graph.
        shared: what it refers to and is no state; a node says which of these it was.

    Raises:
        TypeError: something in it is of a type whose state cannot be told.
    """
    walk = _Describing(shared)
    return StateTree(root=walk.node(root), tensors=tuple(walk.tensors))


def fill_in(tree: StateTree, into: Any, *, shared: Sequence[object]) -> Any:
    """Make ``into``, of the same shape as what was described, know what ``tree`` says.

    What a route keeps of its own stays as it is where ``into`` has another route.

    Raises:
        BundleError: it is of another shape: the state of something else, or of another version.
    """
    return _Filling(tree.tensors, shared).filled(tree.root, into)


class _Describing:
    def __init__(self, shared: Sequence[object]) -> None:
        self.tensors: list[torch.Tensor] = []
        self._shared = {id(each): index for index, each in enumerate(shared)}
        self._tensor_at: dict[int, int] = {}
        self._object_at: dict[int, int] = {}

    def node(self, found: Any) -> Node:
        """Return the node of whatever was found."""
        if isinstance(found, float) and not math.isfinite(found):
            return {"float": str(found)}
        if found is None or (isinstance(found, _SCALARS) and not isinstance(found, Enum)):
            return found
        if id(found) in self._shared:
            return {"shared": self._shared[id(found)]}
        if isinstance(found, torch.Tensor):
            return {"tensor": self._tensor(found)}
        if isinstance(found, Enum):
            return {"enum": _name(type(found)), "value": found.value}
        if isinstance(found, tuple | list):
            kind = "list" if isinstance(found, list) else "tuple"
            return {kind: [self.node(each) for each in found]}
        if isinstance(found, set | frozenset):
            kind = "frozenset" if isinstance(found, frozenset) else "set"
            return {kind: [self.node(each) for each in sorted(found)]}
        if isinstance(found, dict):
            return {"dict": [[self.node(key), self.node(value)] for key, value in found.items()]}
        if isinstance(found, slice):
            return {"slice": [found.start, found.stop, found.step]}
        if isinstance(found, torch.Generator):
            return {"generator": self._tensor(found.get_state())}
        if isinstance(found, _OPAQUE_TYPES):
            return {"opaque": _name(type(found))}
        if _is_foreign(type(found)):
            raise TypeError(f"a part holds a {_name(type(found))}, of which no state can be kept")
        return self._object(found)

    def _tensor(self, found: torch.Tensor) -> int:
        place = self._tensor_at.setdefault(id(found), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(found)
        return place

    def _object(self, found: object) -> Node:
        known = self._object_at.get(id(found))
        if known is not None:
            return {"same": known}
        place = self._object_at[id(found)] = len(self._object_at)
        fields = {name: self.node(value) for name, value in _fields(found)}
        return {"object": _name(type(found)), "id": place, "fields": fields}


class _Filling:
    def __init__(self, tensors: Sequence[torch.Tensor], shared: Sequence[object]) -> None:
        self._tensors = tensors
        self._shared = shared
        self._made: dict[int, Any] = {}

    def filled(self, node: Node, into: Any) -> Any:
        """Return what ``node`` stands for; ``into`` is what lies in its place, or `_OPAQUE`."""
        if not isinstance(node, dict):
            return node
        try:
            return self._of_kind(node, into)
        except RecursionError:
            raise BundleError("a saved state is nested too deep") from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise BundleError(f"a saved state cannot be read: {error!r}") from error

    def _of_kind(self, node: dict[str, Any], into: Any) -> Any:
        match node:
            case {"tensor": index}:
                return self._tensor(index, into)
            case {"object": name, "id": place, "fields": fields}:
                return self._object(name, place, fields, into)
            case {"same": place}:
                return self._made[place]
            case {"float": text}:
                return float(text)
            case {"shared": index}:
                return self._shared[index]
            case {"enum": name, "value": value}:
                return _class(name)(value)
            case {"tuple": nodes}:
                return tuple(self._sequence(nodes, into))
            case {"list": nodes}:
                return list(self._sequence(nodes, into))
            case {"set": nodes}:
                return set(self._sequence(nodes, ()))
            case {"frozenset": nodes}:
                return frozenset(self._sequence(nodes, ()))
            case {"slice": (start, stop, step)}:
                return slice(start, stop, step)
            case {"dict": pairs}:
                return self._dict(pairs, into)
            case {"generator": index}:
                into.set_state(self._tensors[index])
                return into
            case {"opaque": name}:
                return _opaque(name, into)
        raise BundleError(f"a saved state has a node that is none: {sorted(node)}")

    def _sequence(self, nodes: Sequence[Node], into: Any) -> Iterator[Any]:
        there = into if isinstance(into, tuple | list) else ()
        for index, node in enumerate(nodes):
            yield self.filled(node, there[index] if index < len(there) else _OPAQUE)

    def _dict(self, pairs: Sequence[tuple[Node, Node]], into: Any) -> dict[Any, Any]:
        there = into if isinstance(into, dict) else {}
        found = {}
        for key_node, node in pairs:
            key = self.filled(key_node, _OPAQUE)
            found[key] = self.filled(node, there.get(key, _OPAQUE))
        return found

    def _tensor(self, index: int, into: Any) -> torch.Tensor:
        found = self._tensors[index]
        return found.to(into.device) if isinstance(into, torch.Tensor) else found

    def _object(self, name: str, place: int, fields: dict[str, Node], into: Any) -> Any:
        there = _name(type(into))
        if there != name and there.startswith(_ROUTES) and name.startswith(_ROUTES):
            self._made[place] = into
            return into
        if into is not _OPAQUE and _is_own(type(into)) and there != name and _is_part(into):
            raise BundleError(
                f"the saved state has {name} where this run has {there}",
                hint="restore it with the faults and the ownership that it was saved with",
            )
        cls = _class(name)
        made = into if there == name else object.__new__(cls)
        self._made[place] = made
        now = dict(_fields(made))
        for field, node in fields.items():
            if field not in now and there == name:
                raise BundleError(f"the saved state has a field {name}.{field}; this run has none")
            object.__setattr__(made, field, self.filled(node, now.get(field, _OPAQUE)))
        return made


def _opaque(name: str, into: Any) -> Any:
    if _name(type(into)) != name:
        raise BundleError(
            f"the saved state has {name} where this run has {_name(type(into))}",
            hint="restore it with the faults and the ownership that it was saved with",
        )
    return into


def _fields(found: object) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an object that are set, by name."""
    for cls in type(found).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(found, name):
                yield name, getattr(found, name)
    yield from getattr(found, "__dict__", {}).items()


def _class(name: str) -> Any:
    """Return a class of swarepro's own that is loaded."""
    module, _, qualified = name.rpartition(":")
    found = getattr(sys.modules.get(module), qualified, None)
    if not isinstance(found, type) or not _is_own(found) or _name(found) != name:
        raise BundleError(f"a saved state names {name!r}, which is no class of this version")
    return found


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_foreign(cls: type) -> bool:
    """Return whether a class is a library's, whose fields do not tell all that it knows."""
    root = cls.__module__.partition(".")[0]
    return root in sys.stdlib_module_names or root in ("torch", "numpy")


def _is_own(cls: type) -> bool:
    return cls.__module__.split(".", 1)[0] == "swarepro"


def _is_part(found: object) -> bool:
    """Return whether an object holds others that it was given: a part, and no value."""
    return hasattr(found, "__dict__")
