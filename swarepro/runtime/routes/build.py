"""From a route's name to its parts."""

from dataclasses import dataclass

from swarepro.backend import Backend
from swarepro.capture import Digester, HostDigester
from swarepro.runtime.parts import Attention, Ops, Schedule, Store
from swarepro.runtime.routes.eager import EagerAttention, EagerOps, EagerPagedAttention, EagerStore
from swarepro.runtime.routes.orders import LaunchOrders


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteParts:
    """What a route brings to a stage.

    Attributes:
        together: all rows of a step go through the row-wise operations together; else each span's
            by themselves.
    """

    attention: Attention
    store: Store
    ops: Ops
    digester: Digester
    together: bool


def build_route(name: str, schedule: Schedule, backend: Backend) -> RouteParts:
    """Return the parts of the resolved route ``name``, whose launches follow ``schedule``.

    Compiled kernels digest what is captured, too; interpreted ones are far slower than XXH3. A
    Triton route imports its kernels here: the backend has to be active by then.
    """
    if name.startswith("eager"):
        return RouteParts(
            attention=EagerAttention() if name == "eager" else EagerPagedAttention(),
            store=EagerStore(schedule),
            ops=EagerOps(),
            digester=HostDigester(),
            together=False,
        )
    from swarepro.runtime.routes import triton

    orders = LaunchOrders(schedule)
    attention: Attention = (
        triton.TritonSplitAttention(orders)
        if name == "triton-split"
        else triton.TritonPagedAttention(orders)
    )
    return RouteParts(
        attention=attention,
        store=triton.TritonStore(schedule),
        ops=triton.TritonOps(orders),
        digester=_digester(backend),
        together=True,
    )


def _digester(backend: Backend) -> Digester:
    if backend.triton != "compiled":
        return HostDigester()
    from swarepro.runtime.routes.device_digest import DeviceDigester

    return DeviceDigester(backend.torch_device)
