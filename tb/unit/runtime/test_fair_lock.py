# SPDX-License-Identifier: Apache-2.0
"""The lock around a machine."""

from __future__ import annotations

import threading
import time
from unittest.mock import patch

import pytest

from weft.runtime.fair_lock import FairLock


def wait_for(turn: FairLock, count: int) -> None:
    while turn.waiting != count:
        time.sleep(0.001)


def test_served_in_the_order_of_asking() -> None:
    """Whoever lets go and asks again comes last."""
    turn, order = FairLock(), []

    def once(number: int) -> None:
        with turn:
            order.append(number)

    threads = [threading.Thread(target=once, args=(number,)) for number in range(4)]
    with turn:
        for number, thread in enumerate(threads):
            thread.start()
            wait_for(turn, number + 1)
    once(4)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("given", [False, True])
def test_an_interrupted_wait_keeps_nobody_waiting(given: bool) -> None:
    """Interrupted before, or just after its turn was given to it."""
    turn, real = FairLock(), threading.Event.wait

    def interrupted(event: threading.Event, *_: object) -> bool:
        if given:
            turn.__exit__()
            real(event)
        raise KeyboardInterrupt

    turn.__enter__()
    with patch.object(threading.Event, "wait", interrupted), pytest.raises(KeyboardInterrupt):
        turn.__enter__()
    if not given:
        turn.__exit__()
    with turn:
        assert not turn.waiting
