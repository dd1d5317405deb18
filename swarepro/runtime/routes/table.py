"""Which routes there are, and which one ``auto`` means."""

from swarepro.errors import BackendError
from swarepro.registry import did_you_mean

ROUTE_CODES = {"eager-prefill": 1, "eager-decode": 2}
"""Codes of the ``route`` point: which implementation a layer took."""

_ROUTES = ("eager",)
_PLANNED = ("triton-split", "triton-paged")


def resolve_route(name: str) -> str:
    """Return the route that ``name`` means. An explicit request is met or refused, never replaced.

    Raises:
        BackendError: no such route, or one that this version does not have.
    """
    if name == "auto":
        return "eager"
    if name in _ROUTES:
        return name
    if name in _PLANNED:
        raise BackendError(
            f"route {name!r} is not in this version: its Triton kernels are not written yet",
            hint="use --route eager",
        )
    raise BackendError(
        f"unknown route {name!r}",
        hint=did_you_mean(name, _ROUTES) or f"known: auto, {', '.join(_ROUTES)}",
    )
