"""From a schedule to the program order of one launch."""

from swarepro.runtime.parts import Schedule, StoreContext
from swarepro_kernels.order import ProgramOrder


def store_order(schedule: Schedule, context: StoreContext) -> ProgramOrder:
    """Return the order of one store; the same on every route."""
    return lambda num_programs: schedule.order(
        num_programs, context.spans[0].session, context.step, context.layer
    )


class LaunchOrders:
    """Orders of all other launches of a run, one after another."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._launches = 0

    def next(self) -> ProgramOrder:
        """Return the order of the next launch."""
        self._launches += 1
        launch = self._launches
        return lambda num_programs: self._schedule.order(num_programs, launch)
