"""Giving back what was charged: WEIR.REFUND and POST /v1/refund, on one host and with counters in a real redis-server."""

import json
import threading
import time

from support import expect, until
from support.contract import Checked
from support.service import OCR, Service
from support.store import PATIENT, Store
from support.wire import Error, Wire, words

JSON = {"Content-Type": "application/json"}
KINDS = """
rules:
  - { id: local, match: { event: e }, by: [key], counters: local, limits: [ { name: f, algorithm: fixed_window, max: 9, per: 1h } ] }
  - id: exact
    match: { event: e }
    by: [key]
    limits:
      - { name: f, algorithm: fixed_window, max: 10, per: 1h }
      - { name: s, algorithm: sliding_window, max: 10, per: 1h }
      - { name: d, calendar: year, max: 10, tz: Asia/Shanghai }
      - { name: b, max: 10, per: 365d }
  - { id: leased, match: { event: leased }, by: [key], lease: { ttl: 300ms },
      limits: [ { name: f, algorithm: fixed_window, max: 10, per: 1h } ] }
"""
REQUEST = ("event", "ocr", "key", "u1")


# ---- one host ----


def test_a_long_reply_says_all():
    with Service(rules=OCR) as s, Wire(s) as wire:
        expect(wire.ask("WEIR.CHECK", "reply", "long", *REQUEST)[:5], [1, "ocr", "hour", 3, 2])
        reply = wire.ask("WEIR.PEEK", *REQUEST, "reply", "receipt")
        expect((len(reply), reply[7:]), (11, [3600000, 0, 0, None]))
        expect(wire.ask("WEIR.CHECK", "event", "none", "key", "u1", "reply", "long"), [1] + [None] * 5 + [0, None, 0, 0, None])
        wire.send(words("WEIR.CHECK", *REQUEST) * 2 + words("WEIR.CHECK", *REQUEST, "reply", "receipt"))
        expect([len(wire.reply()) for _ in range(3)], [7, 7, 11])
        refused = wire.ask("WEIR.CHECK", *REQUEST, "reply", "receipt")
        expect((refused[0], refused[8:]), (0, [429, 0, None]))


def test_what_was_charged_is_given_back_once():
    with Service(rules=OCR) as s, Wire(s) as wire:
        receipts = [wire.ask("WEIR.CHECK", *REQUEST, "reply", "receipt")[10] for _ in range(3)]
        expect(wire.ask("WEIR.CHECK", *REQUEST)[0], 0)
        expect(wire.ask("WEIR.REFUND", receipts[0], *REQUEST), 2)
        expect(wire.ask("WEIR.REFUND", receipts[0], *REQUEST), 0)
        expect([wire.ask("WEIR.CHECK", *REQUEST)[0] for _ in range(2)], [1, 0])
        # The receipt alone says what it was for; the request may be there, too.
        expect(wire.ask("WEIR.REFUND", receipts[1]), 2)
        expect(wire.ask("WEIR.REFUND", receipts[1], "event", "ocr", "key", "u2"), 0)
        expect([wire.ask("WEIR.CHECK", *REQUEST)[0] for _ in range(2)], [1, 0])
        wire.send(words("WEIR.REFUND", receipts[2]) + words("WEIR.CHECK", *REQUEST) * 2)
        expect([wire.reply(), wire.reply()[0], wire.reply()[0]], [2, 1, 0])


def test_between_multi_and_exec():
    with Service(rules=OCR) as s, Wire(s) as wire:
        receipt = wire.ask("WEIR.CHECK", *REQUEST, "cost", "3", "reply", "receipt")[10]
        expect(wire.ask("MULTI"), "OK")
        wire.ask("WEIR.CHECK", *REQUEST)
        wire.ask("WEIR.REFUND", receipt, *REQUEST)
        wire.ask("WEIR.CHECK", *REQUEST)
        refused, given, passed = wire.ask("EXEC")
        expect((refused[0], given, passed[0]), (0, 2, 1))


def test_mistakes_are_named():
    with Service(rules=OCR) as s, Wire(s) as wire:
        receipt = wire.ask("WEIR.CHECK", *REQUEST, "reply", "receipt")[10]
        for command, why in [
            (("WEIR.REFUND", "x", *REQUEST), "not a valid hold or receipt"),
            (("WEIR.REFUND", receipt[:-1]), "not a valid hold or receipt"),
            (("WEIR.REFUND",), "wrong number of arguments"),
            (("WEIR.REFUND", receipt, "event"), "'event' has no value"),
            (("WEIR.REFUND", receipt, "event", "ocr", "key"), "'key' has no value"),
            (("WEIR.REFUND", receipt, "events", "ocr"), "unknown attribute 'events'"),
            (("WEIR.CHECK", *REQUEST, "reply", "short"), "reply 'short' is unknown; allowed: long, receipt"),
            (("WEIR.CHECK", *REQUEST, "reply", "long", "reply", "long"), "'reply' is given twice"),
        ]:
            reply = wire.ask(*command)
            expect(isinstance(reply, Error) and why in reply, True, (command, reply))
        expect(wire.ask("WEIR.PEEK", *REQUEST)[4], 2)


def test_over_http():
    with Checked(rules=OCR) as s:
        def post(path, body):
            return s.ask(s.http, "POST", path, json.dumps(body), JSON)

        request = {"event": "ocr", "key": "u1", "cost": 3, "refundable": True}
        verdict = post("/v1/check", request).json()
        expect(post("/v1/check", request).status, 429)
        expect("receipt" in post("/v1/check", {**request, "peek": True}).json(), False)
        refund = {**request, "receipt": verdict["receipt"]}
        expect(post("/v1/refund", refund).json(), {"given_back": 2})
        expect(post("/v1/refund", refund).json(), {"given_back": 0})
        both = post("/v1/check", [request, request]).json()
        expect([v["allowed"] for v in both], [True, False])
        expect(post("/v1/refund", {"receipt": both[0]["receipt"]}).json(), {"given_back": 2})
        for path, body, why in [
            ("/v1/refund", request, "receipt: is missing"),
            ("/v1/refund", [refund], "not a list"),
            ("/v1/refund", {**refund, "receipt": "abc"}, "receipt: not a valid receipt"),
            ("/v1/refund", {**refund, "receipt": 1}, "receipt: must be a string"),
            ("/v1/check", refund, 'field "receipt" is not allowed in /v1/check'),
            ("/v1/refund?x=1", refund, "belongs in the body"),
        ]:
            answer = post(path, body)
            expect((answer.status, why in answer.json()["error"]), (400, True), answer.body)
        expect("\nweir_refunds_total 2\n" in s.steer("GET", "/metrics").body.decode(), True)
        expect(s.ask(s.http, "GET", "/v1/refund").status, 405)
        expect(s.ask(s.http, "POST", "/v1/refund", "{}").status, 415)


def test_many_connections_end_where_they_began():
    """Every charge is given back: all is as if nobody had come."""
    with Service("--threads", "2", rules=OCR) as s:
        def work():
            with Wire(s) as wire:
                for _ in range(100):
                    reply = wire.ask("WEIR.CHECK", *REQUEST, "reply", "receipt")
                    if reply[0]:
                        expect(wire.ask("WEIR.REFUND", reply[10], *REQUEST), 2)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with Wire(s) as wire:
            expect([wire.ask("WEIR.CHECK", *REQUEST)[0] for _ in range(4)], [1, 1, 1, 0])


# ---- many hosts ----


def wait_for(wire, event, left):
    """What goes to the store is not waited for."""
    until(lambda: wire.ask("WEIR.PEEK", "event", event, "key", "u1")[4] == left, f"{left} are left of {event}")


def test_to_counters_that_hosts_share():
    with Store() as store:
        flags = ["--counters", store.address, "--store-deadline", "5s"]
        with Service(*flags, rules=KINDS) as s, Service(*flags, rules=KINDS) as other, Wire(s) as wire, Wire(other) as there:
            for service in (s, other):
                until(lambda: service.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
            request = ("event", "e", "key", "u1")
            receipts = [wire.ask("WEIR.CHECK", *request, "cost", "3", "reply", "receipt")[10] for _ in range(3)]
            expect(there.ask("WEIR.PEEK", *request)[1:5], ["exact", "f", 10, 1])
            expect(wire.ask("WEIR.REFUND", receipts[0], *request), 5)
            wait_for(there, "e", 4)
            # Any host gives back what counts in the store. The local rule is for the host that gave the receipt.
            expect(there.ask("WEIR.REFUND", receipts[1], *request), 4)
            wait_for(there, "e", 7)
            expect(wire.ask("WEIR.REFUND", receipts[1], *request), 5)
            expect(wire.ask("WEIR.REFUND", receipts[1], *request), 0)
            expect(there.ask("WEIR.REFUND", receipts[1], *request), 4)  # sent, and nothing comes of it
            expect(wire.ask("WEIR.REFUND", receipts[2], *request), 5)
            until(lambda: wire.ask("WEIR.PEEK", *request)[1:5] == ["local", "f", 9, 9], "all is as it was")
            expect(there.ask("WEIR.CHECK", *request, "cost", "8")[0], 1)
            expect(there.ask("WEIR.PEEK", *request)[1:5], ["local", "f", 9, 1])
            for _ in range(2):
                there.ask("WEIR.REFUND", receipts[0], *request)
            time.sleep(0.2)
            expect(wire.ask("WEIR.PEEK", *request)[4] <= 2, True, "nothing was given back twice")
            expect(other.steer("DELETE", "/v1/subjects?rule=exact&by=u1").status, 204)
            expect(other.steer("DELETE", "/v1/subjects?rule=local&by=u1").status, 204)

            # Set free, and charged again: what was charged before is not what is there now.
            old = wire.ask("WEIR.CHECK", *request, "cost", "5", "reply", "receipt")[10]
            for rule in ("exact", "local"):
                expect(s.steer("DELETE", f"/v1/subjects?rule={rule}&by=u1").status, 204)
            expect(wire.ask("WEIR.CHECK", *request, "cost", "9")[0], 1)
            wire.ask("WEIR.REFUND", old, *request)
            expect([wire.ask("WEIR.CHECK", *request)[0] for _ in range(5)], [0] * 5)


def test_to_slices():
    """Slices are given back when nobody has spent from them for a while; what was spent can be given back still."""
    with Store() as store:
        flags = ["--counters", store.address, "--store-deadline", "5s"]
        with Service(*flags, rules=KINDS) as s, Wire(s) as wire:
            until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
            request = ("event", "leased", "key", "u1")
            # The first slice is long on its way, as from a store that stands still for a moment.
            store.pause()
            go_on = threading.Timer(1.2, store.go_on)
            go_on.start()
            receipts = [wire.ask("WEIR.CHECK", *request, "cost", "3", "reply", "receipt")[10] for _ in range(3)]
            go_on.join()
            expect(wire.ask("WEIR.REFUND", receipts[0], *request), 1)

            def passes():
                return wire.ask("WEIR.CHECK", *request, "cost", "4")[0] == 1

            until(passes, "three were given back, and one was left")
            expect(wire.ask("WEIR.CHECK", *request)[0], 0)
            until(lambda: s.steer("GET", "/v1/status").json()["store"]["lease_tokens_held"] == 0, "no slice is held")
            time.sleep(0.5)  # longer than the rule's ttl
            expect(wire.ask("WEIR.REFUND", receipts[1], *request), 1)
            until(lambda: wire.ask("WEIR.CHECK", *request, "cost", "3")[0] == 1, "three more were given back")
            # Lowered below what is used, nothing that is given back is spent.
            s.write_rules(KINDS.replace("lease: { ttl: 300ms },\n      limits: [ { name: f, algorithm: fixed_window, max: 10",
                                        "lease: { ttl: 300ms },\n      limits: [ { name: f, algorithm: fixed_window, max: 5"))
            until(lambda: wire.ask("WEIR.PEEK", *request)[3] == 5, "the new rules are in force")
            expect(wire.ask("WEIR.REFUND", receipts[2], *request), 1)
            time.sleep(0.5)
            expect(wire.ask("WEIR.CHECK", *request)[0], 0)


def test_while_the_store_is_away():
    with Store() as store:
        with Service("--counters", store.address, *PATIENT, rules=KINDS) as s, Wire(s) as wire:
            until(lambda: s.steer("GET", "/v1/status").json()["store"]["up"], "the store is reached")
            request = ("event", "e", "key", "u1")
            receipt = wire.ask("WEIR.CHECK", *request, "reply", "receipt")[10]
            store.kill()
            until(lambda: not s.steer("GET", "/v1/status").json()["store"]["up"], "the store is missed")
            away = wire.ask("WEIR.CHECK", *request, "reply", "receipt")
            expect(wire.ask("WEIR.REFUND", away[10], *request), 1)  # the local rule; the rest is owed to the store
            expect(wire.ask("WEIR.REFUND", receipt, *request), 1)
