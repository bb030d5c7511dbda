"""Sixty-four clients that could exist, through a real proxy; `scripts/possible-clients` plays as many as you like.

Each is drawn by its number: protocol, ids, dress, side calls, retries, branches, restarts, how it shortens its history.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from possible.__main__ import total
from possible.draw import draw
from possible.judge import MUST_HOLD
from possible.play import Played, play
from possible.stage import Stage

SEEDS = range(64)
FLOORS = {
    ("labels right", "main"): 0.98,
    ("losses told", "losses"): 0.93,
    ("kept whole", "conversations"): 0.95,
    ("sides right", "sides"): 0.97,
    ("details back", "details asked"): 0.7,
}
"""What must be reached over all of them. Each client alone may be an odd one."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Played]:
    """All of them, through one proxy, each with a credential of its own."""
    with Stage(tmp_path_factory.mktemp("possible")) as stage:
        return {seed: asyncio.run(play(draw(seed), stage)) for seed in SEEDS}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_client_meets_a_crash_a_changed_request_a_broken_prefix_a_block_in_a_side_call_or_a_false_alarm(
    played, seed
):
    found = played[seed]
    broken = [fault for fault in found.ledger.faults if fault.kind in MUST_HOLD]
    assert not broken, f"scripts/possible-clients --seeds {seed} --story\n{found.client}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("more", [1, 2])
def test_clients_that_do_more_than_was_known_at_first_meet_none_of_that_either(tmp_path, more):
    """As several calls at once, two windows, a summary in the middle of a turn; answers that are cut off."""
    with Stage(tmp_path) as stage:
        found = [asyncio.run(play(draw(seed, more=more), stage)) for seed in SEEDS[:12]]
    for each in found:
        played = f"scripts/possible-clients --seeds {each.client.number} --more {more} --story"
        assert not each.kinds & MUST_HOLD, played
    counts = total(found)
    for part, whole in FLOORS:
        assert counts[part] >= 0.95 * FLOORS[part, whole] * counts[whole] > 0, part


def test_no_two_tenants_share_a_session(played):
    shared = Counter(session for each in played.values() for session in each.ledger.sessions)
    assert [session for session, tenants in shared.items() if tenants > 1] == []


@pytest.mark.timeout(600)
def test_a_restart_before_every_third_request_costs_nothing(played, tmp_path):
    with Stage(tmp_path, restarts=1 / 3) as stage:
        restarted = {seed: asyncio.run(play(draw(seed), stage)) for seed in SEEDS[:24]}
    for seed, found in restarted.items():
        assert not found.kinds & MUST_HOLD, f"scripts/possible-clients --seeds {seed} --restarts .34 --story"
    before, after = (total(some[seed] for seed in restarted) for some in (played, restarted))
    for right, of in FLOORS:
        assert after[right] >= 0.98 * before[right], (right, after[of])


@pytest.mark.parametrize("seed", [1, 5, 11])
def test_two_tenants_who_say_the_same_at_the_same_time_never_meet(seed, tmp_path):
    async def both(stage: Stage) -> list[Played]:
        client = replace(draw(seed), restarts=False)  # one would take the proxy away from the other
        return await asyncio.gather(*(play(client, stage, key) for key in ("one", "other")))

    with Stage(tmp_path) as stage:
        one, other = asyncio.run(both(stage))
    assert not one.ledger.sessions & other.ledger.sessions
    assert not {"merged", "crash", "error"} & (one.kinds | other.kinds)
    assert one.ledger.counts == other.ledger.counts


@pytest.mark.parametrize(("part", "whole"), FLOORS)
def test_most_of_what_clients_do_is_told_right_and_most_that_they_lost_comes_back(played, part, whole):
    counts = total(played.values())
    assert counts[part] >= FLOORS[part, whole] * counts[whole] > 0


def test_the_same_number_is_the_same_client_with_the_same_conversation(tmp_path: Path):
    stories = []
    for name in ("first", "again"):
        with Stage(tmp_path / name) as stage:
            stories.append([line.partition("; ")[0] for line in asyncio.run(play(draw(3), stage)).ledger.story])
    assert stories[0] == stories[1] != []
    assert draw(3) == draw(3) != draw(4)
