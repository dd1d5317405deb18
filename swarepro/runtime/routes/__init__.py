"""Attention routes and the operations that go with them. The only place that calls kernels."""

from swarepro.runtime.routes.eager import EagerAttention, EagerOps, EagerStore
from swarepro.runtime.routes.table import ROUTE_CODES, resolve_route

__all__ = ["ROUTE_CODES", "EagerAttention", "EagerOps", "EagerStore", "resolve_route"]
