"""Signals sent to this very process."""

import os
import signal
import threading
import time

import pytest

from selabel_tf.training.interruption import Interrupted, Interruption


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")])
def test_where_nobody_waits_a_signal_ends_the_work_at_once(number, name):
    with Interruption(), pytest.raises(Interrupted, match=f"Stopped by {name}."):
        send(number)
        time.sleep(5)


def test_where_somebody_waits_the_work_goes_on_until_it_may_be_left():
    with Interruption() as interruption:
        interruption.leave()  # nothing was asked
        interruption.waits = True
        send()
        assert interruption.asked == "SIGTERM"
        with pytest.raises(Interrupted):
            interruption.leave()
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_second_signal_ends_it_at_once():
    with Interruption() as interruption:
        interruption.waits = True
        send()
        with pytest.raises(Interrupted, match="SIGINT"):
            send(signal.SIGINT)


def test_no_longer_than_the_grace_period_is_waited():
    with Interruption(grace_seconds=0.05) as interruption:
        interruption.waits = True
        send()
        with pytest.raises(Interrupted, match="SIGTERM"):
            time.sleep(5)


def test_afterwards_signals_mean_what_they_meant_before():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(Interrupted), Interruption() as interruption:
        interruption.waits = True
        send()
        interruption.leave()
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_in_another_thread_signals_are_left_alone():
    before, inside = signal.getsignal(signal.SIGTERM), []

    def work():
        with Interruption() as interruption:
            interruption.leave()
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


def test_no_error_handler_takes_it_for_an_error():
    assert not issubclass(Interrupted, Exception)
