"""Attention routes and the operations that go with them. The only place that calls kernels."""

from swarepro.runtime.routes.build import RouteParts, build_route
from swarepro.runtime.routes.table import ROUTE_CODES, ROUTES, backend_for, resolve_route

__all__ = ["ROUTES", "ROUTE_CODES", "RouteParts", "backend_for", "build_route", "resolve_route"]
