#!/usr/bin/python3
"""Two services on one store, with a crowd of clients, and one of them does not reach it, in one direction or in both: what was
charged stays charged, and nothing is let through twice. Through a proxy; and, where there are network namespaces, also
with packets that are dropped.

tests/serve/fleet_cut.py BUILD/weir
"""

import os
import subprocess
import sys
import time

from crowd import Crowd, agree, total
from harness import main
from outage import DEADLINE_S, HOSTS, REST_S, SLACK_S, SMALL
from outage import all_down, all_up, decided_without, fleet, more, settled, subjects_of
from proxy import Proxy
from service import expect
from store import Store


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


def through_a_proxy():
    with Store() as store, Proxy(store) as way, fleet(way, store) as nodes:

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


def with_packets_dropped():
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


def has_network():
    """One of its own, with the rule for this host's addresses behind a place for ours."""
    return INSIDE in os.environ and all(
        run("ip", *words.split()) for words in ("link set lo up", "rule add pref 10 lookup local", "rule del pref 0")
    )


def enter_network():
    """Begins again in a namespace, if that is possible here."""
    for way in ("-n", "-rn"):
        if run("unshare", way, "ip", "link", "set", "lo", "up"):
            os.environ[INSIDE] = "1"
            os.execvp("unshare", ["unshare", way, sys.executable, *sys.argv])


if INSIDE not in os.environ:
    enter_network()
cases = [("through a proxy", through_a_proxy)]
if has_network():
    cases.append(("with packets dropped", with_packets_dropped))
main(cases)
