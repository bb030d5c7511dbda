"""Bots whose users share one key and hear the same answers; scripts/crowd and strangers.py play as many as you like."""

import pytest
import strangers
from crowd import VIEWS, draw, play, total

import lantern_proxy.session

BOTS = (*range(150), 1231, 2304, 2899, 2937, 4531)
PROGRAMS = {
    False: (101, *range(150, 210), 65302, 65458, 66060, 66176, 66738, 66783, 66835, 67657, 68096, 68700, 68828, 70137,
            70871, 71059, 71816, 71992, 72202, *range(100_000, 100_040), 100_181, 100_671, 101_726,
            101_863, 102_019, 102_082, 102_294),
    True: (*range(195, 215), 20012, 60018, 61123, 61441, 61606, 61750, 61896, 62303, 62456, 63546, 63663, 63813, 63979,
           63991, *range(100_020, 100_035), 100_086, 101_587, 101_192, 101_204, 101_625, 101_854,
           101_335, 101_968,
           102_294),
}  # fmt: skip
"""Without restarts and with them; those above 60000 showed strangers once; those from 100,000 on have habits."""


@pytest.mark.parametrize("restarts", [False, True])
def test_no_user_of_a_bot_gets_what_another_one_said_and_most_get_what_they_said_themselves(restarts: bool) -> None:
    found = {bot: play(draw(bot), restarts=restarts) for bot in BOTS}
    counts, more = total(found.values()), " --restarts" if restarts else ""
    assert {draw(bot).view for bot in BOTS} == {*VIEWS}
    assert [f"scripts/crowd --story{more} --bots {bot}" for bot in BOTS if found[bot].counts["strangers"]] == []
    assert counts["found"] >= 0.45 * counts["lost"] > 0


@pytest.mark.parametrize("restarts", PROGRAMS)
def test_no_user_of_a_program_gets_what_another_one_said_whatever_it_shows_and_whomever_it_names(
    restarts: bool,
) -> None:
    found = {n: strangers.play(strangers.draw(n), restarts=restarts) for n in PROGRAMS[restarts]}
    assert [f"python -m strangers --story --programs {n}" for n in found if found[n].counts["strangers"]] == []
    counts = total(found.values())
    assert counts["found"] >= 0.4 * counts["lost"] > 0


def test_where_contests_are_decided_by_chance_strangers_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the players above could."""
    monkeypatch.setattr(lantern_proxy.session, "is_contested", lambda *_, **__: False)
    assert any(play(draw(bot)).counts["strangers"] for bot in BOTS)
    assert any(strangers.play(strangers.draw(n)).counts["strangers"] for n in (181, *PROGRAMS[False]))


def test_the_same_number_is_the_same_bot_with_the_same_chats() -> None:
    assert play(draw(7)).story == play(draw(7)).story != play(draw(8)).story
