"""Reserve, settle, renew, cancel over HTTP and RESP, with rules that count on this host."""

import json
import signal
import subprocess
import sys
import threading

from support import expect, until
from support.contract import Checked
from support.service import Service
from support.wire import Error, Wire, words

JSON = {"Content-Type": "application/json"}
RULES = """
rules:
  - id: llm
    match: { event: llm }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 1000, per: 24h }
      - { name: tokens, unit: tokens, algorithm: fixed_window, max: 100, per: 24h }
      - { name: dollars, unit: udollars, calendar: month, max: 1000000 }
  - id: smooth
    match: { event: smooth }
    by: [key]
    limits:
      - { name: bucket, max: 100, per: 365d }
      - { name: sliding, algorithm: sliding_window, max: 100, per: 24h }
  - id: second
    match: { event: second }
    by: [key]
    limits: [ { name: second, algorithm: fixed_window, max: 100, per: 1s } ]
"""
COSTS = {"requests": 1, "tokens": 60, "udollars": 9000}
COST_WORDS = ("cost", "1", "cost:tokens", "60", "cost:udollars", "9000")


def post(s, path, body):
    return s.ask(s.http, "POST", path, body if isinstance(body, str) else json.dumps(body), JSON)


def reserve(s, key, ttl_ms=3600000, costs=None, **more):
    return post(s, "/v1/reserve", {"event": "llm", "key": key, "costs": costs or COSTS, "ttl_ms": ttl_ms, **more}).json()


def left(s, key, event="llm"):
    """(requests, tokens, micro-dollars) that would still pass."""
    def fits(unit, most):
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            passes = s.check(event=event, key=key, costs={unit: middle}, peek=True).json()["allowed"]
            low, high = (middle, high) if passes else (low, middle - 1)
        return low

    return fits("requests", 1000), fits("tokens", 100), fits("udollars", 1000000)


ALL, HELD = (1000, 100, 1000000), (999, 40, 991000)


# ---- each way to end ----


def test_settle():
    with Checked(rules=RULES) as s:
        hold = reserve(s, "less")["hold"]
        expect(left(s, "less"), HELD)
        refused = post(s, "/v1/reserve", {"event": "llm", "key": "less", "costs": COSTS, "ttl_ms": 5})
        expect((refused.status, refused.json()["limit"], "hold" in refused.json()), (429, "tokens", False))
        settled = {"hold": hold, "costs": {"tokens": 25, "udollars": 4000}}
        expect(post(s, "/v1/settle", settled).json(), {"settled": 3})
        expect(left(s, "less"), (999, 75, 996000), "less is given back, and requests keep what was held")
        for body in (settled, {"hold": hold}, {"hold": hold, "cost": 0}, {"hold": hold, "cost": 900}):
            expect(post(s, "/v1/settle", body).json(), {"settled": 0}, "twice is once")
        expect(post(s, "/v1/renew", {"hold": hold, "ttl_ms": 5}).json(), {"renewed": 0})
        expect(post(s, "/v1/refund", {"hold": hold}).json(), {"given_back": 0})
        expect(left(s, "less"), (999, 75, 996000))

        hold = reserve(s, "more")["hold"]
        expect(post(s, "/v1/settle", {"hold": hold, "costs": {"tokens": 130}}).json(), {"settled": 3})
        verdict = s.check(event="llm", key="more", peek=True).json()
        expect((verdict["allowed"], verdict["limit"], verdict["remaining"]), (False, "tokens", 0), "more is owed")

        hold = reserve(s, "one unit")["hold"]
        expect(post(s, "/v1/settle", {"hold": hold, "cost": 7}).json(), {"settled": 3})
        expect(left(s, "one unit"), (993, 40, 991000))
        hold = reserve(s, "misspelt")["hold"]
        wrong = {"hold": hold, "costs": {"token": 7, "requests": 1, "none": 0, "udollar": 2}}
        expect(post(s, "/v1/settle", wrong).json(), {"settled": 3, "uncounted": ["token", "udollar"]})
        expect(left(s, "misspelt"), HELD)
        hold = reserve(s, "as held")["hold"]
        expect(post(s, "/v1/settle", {"hold": hold}).json(), {"settled": 3})
        expect(left(s, "as held"), HELD)
        for key, path, body, answer in (
            ("cancel", "/v1/settle", {"cost": 0}, {"settled": 3}),
            ("refund", "/v1/refund", {}, {"given_back": 3}),
        ):
            hold = reserve(s, key)["hold"]
            expect(post(s, path, {"hold": hold, **body}).json(), answer)
            expect(left(s, key), ALL)


def test_a_part_of_a_charge():
    """One kind of receipt: a charge is settled as a hold is."""
    with Checked(rules=RULES) as s:
        verdict = s.check(event="llm", key="u", costs=COSTS, refundable=True).json()
        expect("hold" in verdict, False)
        expect(post(s, "/v1/renew", {"receipt": verdict["receipt"], "ttl_ms": 5}).json(), {"renewed": 0})
        expect(post(s, "/v1/settle", {"receipt": verdict["receipt"], "costs": {"tokens": 10}}).json(), {"settled": 3})
        expect(left(s, "u"), (999, 90, 991000))


def test_expiry():
    with Checked(rules=RULES) as s:
        hold, kept = reserve(s, "over", 1)["hold"], reserve(s, "kept", 1, on_expiry="keep")["hold"]
        until(lambda: left(s, "over") == ALL, "the hold is over")
        expect(left(s, "kept"), HELD)
        expect(post(s, "/v1/renew", {"hold": hold, "ttl_ms": 1000}).json(), {"renewed": 0})
        expect(post(s, "/v1/settle", {"hold": hold, "costs": {"tokens": 30}}).json(), {"settled": 3})
        expect(left(s, "over"), (999, 70, 991000), "the truth is charged later")
        expect(post(s, "/v1/settle", {"hold": hold, "costs": {"tokens": 30}}).json(), {"settled": 0})
        expect(post(s, "/v1/settle", {"hold": kept, "costs": {"tokens": 30}}).json(), {"settled": 3})
        expect(left(s, "kept"), (999, 70, 991000))


def test_renew():
    with Checked(rules=RULES) as s:
        hold = reserve(s, "u", 60000)["hold"]
        expect(post(s, "/v1/renew", {"hold": hold, "ttl_ms": 86400000}).json(), {"renewed": 3})
        expect(left(s, "u"), HELD)
        expect(post(s, "/v1/renew", {"hold": hold, "ttl_ms": 1}).json(), {"renewed": 3})
        until(lambda: left(s, "u") == ALL, "the hold is over")
        expect(post(s, "/v1/renew", {"hold": hold, "ttl_ms": 60000}).json(), {"renewed": 0})


def test_a_window_that_is_over_takes_nothing():
    with Service(rules=RULES) as s:
        body = {"event": "second", "key": "u", "cost": 60, "ttl_ms": 3600000}
        hold = post(s, "/v1/reserve", body).json()["hold"]
        until(lambda: s.check(event="second", key="u", cost=100, peek=True).json()["allowed"], "the window is over")
        expect(post(s, "/v1/settle", {"hold": hold, "cost": 100}).json(), {"settled": 0})
        expect(s.check(event="second", key="u", cost=100, peek=True).json()["allowed"], True)


def test_buckets_and_sliding_windows():
    with Service(rules=RULES) as s:
        def most():
            return next(n for n in range(100, -1, -1) if s.check(event="smooth", key="u", cost=n, peek=True).json()["allowed"])

        body = {"event": "smooth", "key": "u", "cost": 60, "ttl_ms": 3600000}
        hold = post(s, "/v1/reserve", body).json()["hold"]
        expect(most(), 40)
        expect(post(s, "/v1/settle", {"hold": hold, "cost": 25}).json(), {"settled": 2})
        expect(most(), 75)
        post(s, "/v1/reserve", {**body, "ttl_ms": 1})
        until(lambda: most() == 75, "the hold is over")


def test_nothing_to_hold():
    with Checked(rules=RULES) as s:
        expect("hold" in post(s, "/v1/reserve", {"event": "free", "ttl_ms": 5}).json(), False)
        expect("hold" in post(s, "/v1/reserve", {"event": "llm", "key": "u", "cost": 0, "ttl_ms": 5}).json(), False)
        expect("hold" in post(s, "/v1/reserve", {"event": "llm", "key": "u", "peek": True, "ttl_ms": 5}).json(), False)
        expect(left(s, "u"), ALL)


def test_lists():
    with Checked(rules=RULES) as s:
        body = {"event": "llm", "key": "u", "costs": {"tokens": 40}, "ttl_ms": 3600000}
        verdicts = post(s, "/v1/reserve", [body, {**body, "on_expiry": "keep"}, body]).json()
        expect([v["allowed"] for v in verdicts], [True, True, False])
        expect(["hold" in v for v in verdicts], [True, True, False])
        for verdict in verdicts[:2]:
            expect(post(s, "/v1/settle", {"hold": verdict["hold"], "cost": 0}).json(), {"settled": 1})
        expect(left(s, "u"), ALL)
        # More than are decided together.
        many = post(s, "/v1/reserve", [{**body, "key": f"k{i}"} for i in range(100)]).json()
        expect(len({v["hold"] for v in many}), 100)


# ---- mistakes ----


def test_mistakes_over_http():
    with Checked(rules=RULES) as s:
        hold = reserve(s, "u")["hold"]
        asked = {"event": "llm", "key": "v", "ttl_ms": 5}
        ttl = "ttl_ms: must be a whole number of milliseconds from 1 to 86400000"
        for path, body, why in [
            ("/v1/reserve", {"event": "llm"}, "ttl_ms: is missing"),
            ("/v1/reserve", [asked, {"event": "llm"}], "ttl_ms: is missing"),
            *(("/v1/reserve", {**asked, "ttl_ms": bad}, ttl) for bad in (0, -1, 86400001, 1.5, "5", None, True, [5], 1e3)),
            *(("/v1/reserve", {**asked, "on_expiry": bad}, 'on_expiry: must be "release" or "keep"') for bad in ("kept", 1, None)),
            ("/v1/reserve", {**asked, "hold": hold}, 'field "hold" is not allowed in /v1/reserve'),
            ("/v1/reserve", {**asked, "events": "x"}, 'unknown field "events"'),
            ("/v1/reserve", '{"ttl_ms": 5, "ttl_ms": 5}', "ttl_ms: is given twice"),
            ("/v1/reserve", "", "a request must be an object"),
            ("/v1/reserve?x=1", asked, "belongs in the body"),
            ("/v1/check", asked, 'field "ttl_ms" is not allowed in /v1/check'),
            ("/v1/check", {"on_expiry": "keep"}, 'field "on_expiry" is not allowed in /v1/check'),
            ("/v1/settle", {}, "hold: is missing"),
            ("/v1/settle", [], "not a list"),
            ("/v1/settle", [{"hold": hold}], "not a list"),
            *(("/v1/settle", {"hold": bad}, "hold: must be a string") for bad in (1, None, [hold], {"a": 1})),
            *(("/v1/settle", {"hold": bad}, "hold: not a valid hold") for bad in ("x", hold[:-1], hold + "00", "g" * len(hold))),
            ("/v1/settle", {"hold": hold, "receipt": hold}, "hold and receipt are the same"),
            ("/v1/settle", {"hold": hold, "cost": 1, "costs": {"tokens": 1}}, "cannot be combined"),
            *(("/v1/settle", {"hold": hold, "cost": bad}, "cost: must be a whole number") for bad in (-1, 1.5, "1", 2**53)),
            *(("/v1/settle", {"hold": hold, "costs": bad}, "costs") for bad in (5, {"tokens": -1}, {"": 1}, {"a b": 1}, [1])),
            ("/v1/settle", {"hold": hold, "event": "llm"}, 'field "event" is not allowed in /v1/settle'),
            ("/v1/settle", {"hold": hold, "ttl_ms": 5}, 'field "ttl_ms" is not allowed in /v1/settle'),
            ("/v1/settle?hold=1", {"hold": hold}, "belongs in the body"),
            ("/v1/renew", {"hold": hold}, "ttl_ms: is missing"),
            ("/v1/renew", {"ttl_ms": 5}, "hold: is missing"),
            ("/v1/renew", {"hold": "x", "ttl_ms": 5}, "hold: not a valid hold"),
            ("/v1/renew", {"hold": hold, "ttl_ms": 86400001}, ttl),
            ("/v1/renew", {"hold": hold, "ttl_ms": 5, "cost": 1}, 'field "cost" is not allowed in /v1/renew'),
        ]:
            answer = post(s, path, body)
            expect((answer.status, why in answer.json()["error"]), (400, True), (path, body, answer.body))
        # Well formed, and of no use: one bit of it was changed.
        forged = hold[:-1] + ("1" if hold[-1] == "0" else "0")
        expect(post(s, "/v1/settle", {"hold": forged, "cost": 0}).json(), {"settled": 0})
        for path in ("/v1/reserve", "/v1/settle", "/v1/renew"):
            expect(s.ask(s.http, "GET", path).status, 405)
            expect(s.ask(s.http, "POST", path, "{}").status, 415)
        expect(left(s, "u"), HELD, "no mistake has changed anything")


def test_mistakes_over_resp():
    with Service(rules=RULES) as s, Wire(s) as wire:
        hold = wire.ask("WEIR.RESERVE", "event", "llm", "key", "u", *COST_WORDS, "ttl", "3600000")[10]
        for command, why in [
            (("WEIR.RESERVE",), "wrong number of arguments"),
            (("WEIR.RESERVE", "event", "llm", "key", "v"), "WEIR.RESERVE needs 'ttl'"),
            *((("WEIR.RESERVE", "event", "llm", "ttl", bad), f"ttl '{bad}' is not a whole number of milliseconds from 1 to 86400000")
              for bad in ("0", "-1", "86400001", "x", "", "1.5")),
            (("WEIR.RESERVE", "event", "llm", "ttl", "5", "ttl", "5"), "'ttl' is given twice"),
            (("WEIR.RESERVE", "event", "llm", "ttl", "5", "on_expiry", "x"), "on_expiry 'x' is unknown; allowed: release, keep"),
            (("WEIR.RESERVE", "event", "llm", "key", "v", "ttl"), "'ttl' has no value"),
            (("WEIR.RESERVE", "event", "llm", "ttls", "5"), "unknown attribute 'ttls'; allowed: ttl, on_expiry, method"),
            (("WEIR.CHECK", "event", "llm", "ttl", "5"), "unknown attribute 'ttl'"),
            (("WEIR.SETTLE",), "wrong number of arguments"),
            (("WEIR.SETTLE", "x"), "not a valid hold or receipt"),
            (("WEIR.SETTLE", hold, "cost"), "'cost' has no value"),
            (("WEIR.SETTLE", hold, "cost", "-1"), "cost '-1' is not a whole number"),
            (("WEIR.SETTLE", hold, "cost", "1", "cost", "1"), "'cost' is given twice"),
            (("WEIR.SETTLE", hold, "cost:", "1"), "is not the name of a unit"),
            (("WEIR.SETTLE", hold, "event", "llm"), "unknown attribute 'event'; allowed: cost, cost:UNIT"),
            (("WEIR.RENEW", hold), "wrong number of arguments"),
            (("WEIR.RENEW", hold, "ttl", "0"), "ttl '0' is not a whole number"),
            (("WEIR.RENEW", hold, "cost", "5"), "unknown attribute 'cost'; allowed: ttl"),
            (("WEIR.RENEW", "x", "ttl", "5"), "not a valid hold or receipt"),
        ]:
            reply = wire.ask(*command)
            expect(isinstance(reply, Error) and why in reply, True, (command, reply))
        expect(left(s, "u"), HELD)
        expect(left(s, "v"), ALL)


# ---- RESP ----


def test_resp():
    with Service(rules=RULES) as s, Wire(s) as wire:
        reply = wire.ask("WEIR.RESERVE", "event", "llm", "key", "u", *COST_WORDS, "ttl", "3600000", "on_expiry", "release")
        expect((reply[:5], len(reply), reply[11]), ([1, "llm", "tokens", 100, 40], 12, "tokens"))
        expect(wire.ask("WEIR.RENEW", reply[10], "ttl", "60000"), 3)
        expect(wire.ask("WEIR.SETTLE", reply[10], "cost:tokens", "25"), 3)
        expect(left(s, "u"), (999, 75, 991000))
        expect([wire.ask("WEIR.SETTLE", reply[10]), wire.ask("WEIR.REFUND", reply[10])], [0, 0])
        refused = wire.ask("WEIR.RESERVE", "event", "llm", "key", "u", "cost:tokens", "76", "ttl", "5")
        expect((refused[0], refused[10]), (0, None))
        kept = wire.ask("WEIR.RESERVE", "event", "llm", "key", "k", *COST_WORDS, "ttl", "1", "on_expiry", "keep")[10]
        over = wire.ask("WEIR.RESERVE", "event", "llm", "key", "o", *COST_WORDS, "ttl", "1")[10]
        until(lambda: left(s, "o") == ALL, "the hold is over")
        expect(left(s, "k"), HELD)
        expect([wire.ask("WEIR.SETTLE", kept, "cost", "0"), wire.ask("WEIR.SETTLE", over, "cost:tokens", "1")], [3, 3])
        expect((left(s, "k"), left(s, "o")), (ALL, (999, 99, 991000)))


def test_pipelines_and_multi():
    with Service(rules=RULES) as s, Wire(s) as wire:
        asked = ("WEIR.RESERVE", "event", "llm", "key", "p", "cost:tokens", "60", "ttl", "3600000")
        wire.send(words(*asked) * 2 + words("PING") + words(*asked))
        first, second, pong, third = (wire.reply() for _ in range(4))
        expect((first[0], second[0], pong, third[0]), (1, 0, "PONG", 0))
        wire.send(words("WEIR.SETTLE", first[10], "cost:tokens", "10") + words(*asked) + words(*asked))
        settled, passed, refused = (wire.reply() for _ in range(3))
        expect((settled, passed[0], refused[0]), (1, 1, 0))
        expect(wire.ask("MULTI"), "OK")
        wire.ask("WEIR.RENEW", passed[10], "ttl", "60000")
        wire.ask("WEIR.SETTLE", passed[10], "cost", "0")
        wire.ask(*asked)
        renewed, settled, again = wire.ask("EXEC")
        expect((renewed, settled, again[0]), (1, 1, 1))


# ---- many at once, and deaths ----


def test_a_thousand_reservations_of_a_hundred():
    with Service("--threads", "2", rules=RULES) as s:
        passed, lock = [], threading.Lock()

        def work():
            with Wire(s) as wire:
                wire.send(words("WEIR.RESERVE", "event", "llm", "key", "u", "cost:tokens", "1", "ttl", "3600000") * 100)
                replies = [wire.reply() for _ in range(100)]
            with lock:
                passed.extend(reply[10] for reply in replies if reply[0])

        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect((len(passed), len(set(passed))), (100, 100))
        with Wire(s) as wire:
            expect([wire.ask("WEIR.SETTLE", hold, "cost", "0") for hold in passed], [1] * 100)
        expect(left(s, "u"), ALL)


def test_the_service_is_killed_and_started_again():
    with Service(rules=RULES) as s:
        hold, short = reserve(s, "u")["hold"], reserve(s, "short", 1500)["hold"]
        s.kill()
        s.start()
        expect(left(s, "u"), HELD)
        until(lambda: left(s, "short") == ALL, "a hold ends without anybody who looks after it")
        s.restart()
        expect(post(s, "/v1/settle", {"hold": hold, "costs": {"tokens": 5}}).json(), {"settled": 3})
        expect(left(s, "u"), (999, 95, 991000))
        expect(post(s, "/v1/settle", {"hold": short, "costs": {"tokens": 5}}).json(), {"settled": 3})


def test_a_client_is_killed():
    program = """
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(bytes.fromhex(sys.argv[2]))
s.recv(65536)
print("held", flush=True)
time.sleep(600)
"""
    with Service(rules=RULES) as s:
        command = words("WEIR.RESERVE", "event", "llm", "key", "u", *COST_WORDS, "ttl", "2000").hex()
        with subprocess.Popen([sys.executable, "-c", program, str(s.resp[1]), command], stdout=subprocess.PIPE) as client:
            expect(client.stdout.readline(), b"held\n")
            client.kill()
            expect(client.wait(), -signal.SIGKILL)
        until(lambda: left(s, "u") == ALL, "what it held is free")
