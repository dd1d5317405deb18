"""The ownership check names each kind of violation, and is silent on a healthy session."""

import torch

from swarepro.kvcache import OwnershipCheck, SwaSession


def session(capacity: int = 6) -> SwaSession:
    owner = SwaSession(full_slots=torch.arange(1, capacity + 1), swa_capacity=capacity)
    owner.ensure(0, 4)
    return owner


def kinds(check: OwnershipCheck, owner: SwaSession) -> list[str]:
    return [violation.kind for violation in check.report(owner).violations]


def test_silent_on_a_healthy_session():
    owner, check = session(), OwnershipCheck()
    check.after_store(0, 0, torch.tensor([1, 2, 3, 4]), owner)
    report = check.report(owner)
    assert report.violations == ()
    assert (report.capacity, report.free, report.live, report.positions) == (6, 2, 4, 4)
    assert report.owned == (1, 2, 3, 4)


def test_sentinel_store_names_positions():
    owner, check = session(), OwnershipCheck()
    check.after_store(3, 2, torch.tensor([3, 0]), owner)
    (violation,) = check.report(owner).violations
    assert (violation.kind, violation.step, violation.positions) == ("sentinel-store", 3, (3,))
    assert "position 3 stored to SWA slot 0" in violation.message


def test_duplicate_slot_store():
    owner, check = session(), OwnershipCheck()
    check.after_store(0, 0, torch.tensor([1, 2, 2, 4]), owner)
    (violation,) = check.report(owner).violations
    assert violation.kind == "duplicate-slot-store"
    assert (violation.positions, violation.slots) == ((1, 2), (2,))


def test_unallocated_store():
    owner, check = session(), OwnershipCheck()
    check.after_store(0, 3, torch.tensor([6]), owner)
    (violation,) = check.report(owner).violations
    assert (violation.kind, violation.positions, violation.slots) == (
        "unallocated-store",
        (3,),
        (6,),
    )


def test_a_stale_mapping_after_reset():
    owner, check = session(), OwnershipCheck()
    stale = owner.mapping.clone()
    owner.reset()
    check.after_reset(1, owner)
    assert kinds(check, owner) == []
    owner.mapping.copy_(stale)
    check.after_reset(1, owner)
    assert kinds(check, owner) == ["free-while-mapped"]


def test_a_zeroed_free_list():
    owner, check = session(), OwnershipCheck()
    owner.reset()
    owner.allocator.free_list.zero_()
    check.after_reset(1, owner)
    assert kinds(check, owner) == ["sentinel-on-free-list", "mapping-lost"]


def test_two_positions_that_own_one_slot():
    owner, check = session(), OwnershipCheck()
    owner.mapping[2] = owner.mapping[1]
    check.after_store(0, 3, torch.tensor([4]), owner)
    assert kinds(check, owner) == ["duplicate-owner", "mapping-lost"]


def test_a_leak_names_the_slot():
    owner, check = session(), OwnershipCheck()
    owner.mapping[4] = 0
    check.after_store(0, 0, torch.tensor([1, 2, 3]), owner)
    (violation,) = check.report(owner).violations
    assert (violation.kind, violation.slots) == ("mapping-lost", (4,))


def test_a_kind_is_reported_once_at_its_first_step():
    owner, check = session(), OwnershipCheck()
    for step in (2, 3):
        check.after_store(step, 0, torch.tensor([0]), owner)
    assert [v.step for v in check.report(owner).violations] == [2]
