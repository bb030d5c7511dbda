"""Bots whose users share one key and hear the same answers; `scripts/crowd` plays as many as you like."""

import pytest
from crowd import VIEWS, draw, play, total

import lantern_proxy.session

BOTS = range(150)


@pytest.mark.parametrize("restarts", [False, True])
def test_no_user_of_a_bot_gets_what_another_one_said_and_most_get_what_they_said_themselves(restarts: bool) -> None:
    found = {bot: play(draw(bot), restarts=restarts) for bot in BOTS}
    counts, more = total(found.values()), " --restarts" if restarts else ""
    assert {draw(bot).view for bot in BOTS} == {*VIEWS}
    assert [f"scripts/crowd --story{more} --bots {bot}" for bot in BOTS if found[bot].counts["strangers"]] == []
    assert counts["found"] >= 0.45 * counts["lost"] > 0


def test_where_contests_are_decided_by_chance_strangers_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the players above could."""
    monkeypatch.setattr(lantern_proxy.session, "is_contested", lambda *_, **__: False)
    assert total(play(draw(bot)) for bot in BOTS)["strangers"] > 0


def test_the_same_number_is_the_same_bot_with_the_same_chats() -> None:
    assert play(draw(7)).story == play(draw(7)).story != play(draw(8)).story
