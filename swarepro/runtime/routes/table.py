"""Which routes there are, what ``auto`` means, and which Triton mode a route needs."""

from swarepro.backend import Backend, TritonMode
from swarepro.errors import BackendError
from swarepro.registry import did_you_mean

ROUTES = ("eager", "eager-paged", "triton-split", "triton-paged")
ROUTE_CODES = {
    "eager-prefill": 1,
    "eager-decode": 2,
    "triton-split-prefill": 3,
    "triton-split-decode": 4,
    "triton-paged": 5,
    "eager-paged": 6,
}
"""Codes of the ``route`` point: which implementation a layer took."""


def resolve_route(name: str, *, device: str) -> str:
    """Return the route that ``name`` means on ``device``.

    ``auto`` is eager on the CPU and triton-split on CUDA. An explicit request is met or refused,
    never replaced.

    Raises:
        BackendError: no such route.
    """
    if name == "auto":
        return "triton-split" if device.startswith("cuda") else "eager"
    if name in ROUTES:
        return name
    raise BackendError(
        f"unknown route {name!r}",
        hint=did_you_mean(name, ROUTES) or f"known: auto, {', '.join(ROUTES)}",
    )


def triton_mode(route: str, *, device: str) -> TritonMode:
    """Return how kernels of ``route`` run on ``device``: not at all, compiled, or interpreted."""
    if route.startswith("eager"):
        return "off"
    return "compiled" if device.startswith("cuda") else "interpret"


def backend_for(route: str, device: str) -> Backend:
    """Return the backend that a resolved ``route`` needs on a chosen ``device``."""
    return Backend(device=device, triton=triton_mode(route, device=device))


def other_route(route: str) -> str:
    """Return the other legal attention implementation of a resolved route's Triton mode."""
    library, _, _ = route.partition("-")
    (other,) = (name for name in ROUTES if name.startswith(library) and name != route)
    return other
