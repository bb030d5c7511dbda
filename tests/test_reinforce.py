"""Confidence and success."""

import pytest

from lantern_proxy.analyze import key
from lantern_proxy.reinforce import Rates, retrievable, settle, used

RATES = Rates()


def test_use_is_an_own_term_in_the_answer():
    own = [key("port 9443")]
    assert used(own, key("Connect to Port: 9443, please."))
    assert not used(own, key("Connect to port 94431."))
    assert not used([], key("port 9443"))


def test_used_gains_and_unused_loses_between_floor_and_one():
    assert settle(0.5, 0.5, True, RATES) == (pytest.approx(0.65), pytest.approx(0.55))
    assert settle(0.5, 0.5, False, RATES) == (pytest.approx(0.48), pytest.approx(0.45))
    assert settle(0.95, 0.5, True, RATES)[0] == 1.0
    assert settle(0.11, 0.5, False, RATES)[0] == RATES.floor


def test_a_passage_that_is_never_used_ends_below_the_minimum_and_can_come_back():
    confidence, success = 0.5, 0.5
    for _ in range(40):
        confidence, success = settle(confidence, success, False, RATES)
    assert not retrievable(confidence, RATES)
    assert confidence == RATES.floor
    assert retrievable(settle(confidence, success, True, RATES)[0], RATES)
