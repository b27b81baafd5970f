"""Two services on one store, with a crowd of clients, and one of them does not reach it, in one direction or in both: what was
charged stays charged, and nothing is let through twice. Through a proxy; and, where there are network namespaces, also
with packets that are dropped."""

import os
import subprocess
import sys
import time

import pytest

from support import expect
from support.crowd import Crowd, agree, total
from support.outage import DEADLINE_S, HOSTS, REST_S, SLACK_S, SMALL
from support.outage import all_down, all_up, decided_without, fleet, more, settled, subjects_of
from support.proxy import Proxy
from support.store import Store


def cut_and_mended(store, way, nodes, cut):
    """One node is cut off for a while. Everything arrives in the end, and is counted once."""
    key = cut.__name__
    subjects = subjects_of(key, "local", "deny")
    with Crowd(nodes, subjects, greedy=True, rest_s=REST_S) as crowd:
        more(crowd, subjects)
        begun = time.monotonic()
        cut()
        all_down(nodes[:1])
        decided_without(nodes[:1], key)
        more(crowd, subjects_of(key, "local"))
        expect(nodes[1].is_up(), True, "the other one goes on")
        ended = time.monotonic()
        way.mend()
        all_up(nodes)
        more(crowd, subjects)
    expect(crowd.slowest(begun, ended)[1] < DEADLINE_S + SLACK_S, True, "in time")
    for subject in subjects:
        settled(store, nodes, subject, crowd.allowed(subject))
    settled(store, nodes, ("small", key), SMALL // HOSTS)
    expect(total(nodes, "lost"), 0)


def cut_and_broken(store, way, nodes, cut, arrives):
    """… and the connections break. What was charged stays charged, and nothing is let through twice: too few, never too
    many. `arrives`: the questions did."""
    subjects = subjects_of(cut.__name__ + "-off", "local", "deny")
    lost_before = total(nodes, "lost")
    with Crowd(nodes, subjects, greedy=True, rest_s=REST_S) as crowd:
        more(crowd, subjects)
        cut()
        all_down(nodes[:1])
        way.reset()
        way.mend()
        all_up(nodes)
        more(crowd, subjects)
    lost = total(nodes, "lost") - lost_before
    expect(lost > 0, True, "some were lost")
    for subject in subjects:
        settled(store, nodes, subject, crowd.allowed(subject), lost if arrives else 0)


def test_through_a_proxy(store):
    with Proxy(store) as way, fleet(way, store) as nodes:

        def no_answers():
            way.answers.clear()

        def no_requests():
            way.requests.clear()

        def silence():
            no_answers()
            no_requests()

        def slow():
            way.slow(2 * DEADLINE_S)

        for cut in (no_answers, no_requests, silence, slow):
            cut_and_mended(store, way, nodes, cut)
        agree(nodes[0], up=5, down=4)
        for cut, arrives in ((no_answers, True), (no_requests, False)):
            cut_and_broken(store, way, nodes, cut, arrives)
        # A connection that breaks when another one has been made already may count as an outage of its own.
        agree(nodes[0])
        agree(nodes[1], up=1)


# ---- a network of its own ----

HERE, THERE = "127.0.0.1", "127.0.0.2"
INSIDE = "WEIR_TEST_NAMESPACE"
NETWORK = "ip link set lo up; ip rule add pref 10 lookup local; ip rule del pref 0"


def run(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Network:
    """Rules for what goes to an address come before the one that all of this host's addresses are reached by."""

    def __init__(self, store):
        self.address = f"redis://{THERE}:{store.port}/0"

    def drop(self, source, target):
        expect(run("ip", "rule", "add", "pref", "5", "from", source, "to", target, "blackhole"), True, "a rule")

    def mend(self):
        while run("ip", "rule", "del", "pref", "5"):
            pass


@pytest.fixture
def network():
    """Runs the test in a network of its own, with the rule for this host's addresses behind a place for ours: there it yields
    True, and here, where the test was started, False once it has passed there."""
    if INSIDE in os.environ:
        expect(run("sh", "-ec", NETWORK), True, NETWORK)
        return True
    ways = [way for way in ("-n", "-rn") if run("unshare", way, "sh", "-ec", NETWORK)]
    if not ways:
        pytest.skip("namespaces of the network are missing (unshare -n, ip rule)")
    words = ["unshare", ways[0], sys.executable, "-m", "pytest", "-q", f"{__file__}::test_with_packets_dropped"]
    done = subprocess.run(words, env={**os.environ, INSIDE: "1"}, capture_output=True, text=True, check=False)
    expect((done.returncode, "1 passed" in done.stdout), (0, True), done.stdout + done.stderr)
    return False


def test_with_packets_dropped(network):
    if not network:
        return
    with Store("--bind", HERE, THERE) as store:
        way = Network(store)
        with fleet(way, store) as nodes:

            def no_answers():
                way.drop(THERE, HERE)

            def no_requests():
                way.drop(HERE, THERE)

            for cut in (no_answers, no_requests):
                cut_and_mended(store, way, nodes, cut)
            agree(nodes[0], up=3, down=2)
            agree(nodes[1], up=1)
