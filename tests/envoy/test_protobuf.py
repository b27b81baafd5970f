"""The codec of src/envoy beside Google's protobuf: random messages, and messages with a few wrong bytes."""

import json
import os
import random
import subprocess

from google.protobuf.message import DecodeError

from support import BUILD, expect
from support.envoy import RateLimitRequest, UNITS

SEED = int(os.environ.get("TEST_SEED") or random.randrange(1 << 32))
COUNT = int(os.environ.get("TEST_COUNT") or 20000)
DUMP = os.path.join(BUILD, "tests", "envoy", "envoy_dump")

OK, MALFORMED, REJECTED, TOO_MANY = range(4)
DESCRIPTORS_MAX, ENTRIES_MAX = 64, 32


def read(messages):
    """What the codec says of each message."""
    stream = b"".join(len(message).to_bytes(4, "big") + message for message in messages)
    found = subprocess.run([DUMP], input=stream, stdout=subprocess.PIPE, check=True).stdout
    lines = found.decode().splitlines()
    expect(len(lines), len(messages), f"answers (TEST_SEED={SEED})")
    return [json.loads(line) for line in lines]


def hexed(text):
    return text.encode().hex()


def wanted(message):
    """The same, from protobuf's message."""
    descriptors = []
    for one in message.descriptors:
        to = {"entries": [[hexed(e.key), hexed(e.value)] for e in one.entries], "negative": one.is_negative_hits}
        if one.HasField("hits_addend"):
            to["hits"] = one.hits_addend.value
        if one.HasField("limit"):
            to["limit"] = [one.limit.requests_per_unit, one.limit.unit]
            if one.limit.HasField("unit_multiplier"):
                to["multiplier"] = one.limit.unit_multiplier.value
        descriptors.append(to)
    return {"error": OK, "domain": hexed(message.domain), "hits": message.hits_addend, "descriptors": descriptors}


def text(rng):
    return "".join(rng.choice("ab=,%é€\U0001f600\0 ") for _ in range(rng.randrange(6)))


def random_message(rng):
    message = RateLimitRequest(domain=text(rng), hits_addend=rng.choice([0, 1, 7, (1 << 32) - 1]))
    for _ in range(rng.choice([0, 1, 2, 3, 10])):
        one = message.descriptors.add(is_negative_hits=rng.random() < 0.2)
        for _ in range(rng.choice([0, 1, 2, 5])):
            one.entries.add(key=text(rng), value=text(rng))
        if rng.random() < 0.3:
            one.limit.requests_per_unit = rng.choice([0, 5, (1 << 32) - 1])
            one.limit.unit = rng.choice(list(UNITS.values()))
            if rng.random() < 0.5:
                one.limit.unit_multiplier.value = rng.choice([0, 1, 3, (1 << 32) - 1])
        if rng.random() < 0.3:
            one.hits_addend.value = rng.choice([0, 1, (1 << 64) - 1])
    return message


def many(message):
    return len(message.descriptors) > DESCRIPTORS_MAX or any(len(d.entries) > ENTRIES_MAX for d in message.descriptors)


def test_random_messages():
    rng = random.Random(SEED)
    messages = [random_message(rng) for _ in range(COUNT // 10)]
    for message, found in zip(messages, read([m.SerializeToString() for m in messages])):
        expect(found, wanted(message), f"TEST_SEED={SEED}: {message}")


def test_messages_in_pieces():
    """Two messages one after the other are one: fields are replaced, messages merge, lists grow."""
    rng = random.Random(SEED)
    pairs = [random_message(rng).SerializeToString() + random_message(rng).SerializeToString() for _ in range(COUNT // 10)]
    for bytes_, found in zip(pairs, read(pairs)):
        expect(found, wanted(RateLimitRequest.FromString(bytes_)), f"TEST_SEED={SEED}: {bytes_.hex()}")


def merged_field(rng):
    """A descriptor whose limit and hits_addend come in several pieces."""
    pieces = []
    for _ in range(rng.randrange(1, 5)):
        one = RateLimitRequest().descriptors.add()
        if rng.random() < 0.5:
            one.limit.requests_per_unit = rng.randrange(5)
        if rng.random() < 0.5:
            one.limit.unit = rng.randrange(8)
        if rng.random() < 0.5:
            one.limit.unit_multiplier.value = rng.randrange(5)
        if rng.random() < 0.5:
            one.hits_addend.value = rng.randrange(5)
        pieces.append(one.SerializeToString())
    body = b"".join(pieces)
    return b"\x12" + bytes([len(body)]) + body


def test_merging():
    rng = random.Random(SEED)
    messages = [merged_field(rng) for _ in range(COUNT // 10)]
    for bytes_, found in zip(messages, read(messages)):
        expect(found, wanted(RateLimitRequest.FromString(bytes_)), f"TEST_SEED={SEED}: {bytes_.hex()}")


def damaged(rng):
    bytes_ = bytearray(random_message(rng).SerializeToString())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(bytes_) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            del bytes_[at:]
        elif kind == 1 and at < len(bytes_):
            bytes_[at] = rng.randrange(256)
        elif kind == 2:
            bytes_[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(4)))
        else:
            bytes_[at:at] = rng.choice([b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x01", b"\x23\x24", b"\xa2\x06\x01x", b"\x80\x00"])
    return bytes(bytes_)


def varint(bytes_, at):
    """(value, where it ends, number of bytes); None: cut off."""
    value = count = 0
    while at < len(bytes_):
        value |= (bytes_[at] & 0x7F) << (7 * count)
        at, count = at + 1, count + 1
        if bytes_[at - 1] < 0x80:
            return value, at, count
    return None


# Messages within messages, by the numbers of their fields.
SCHEMA = {2: {1: {}, 2: {3: {}}, 3: {}}}


def illegal(bytes_, schema=None):
    """Whether the bytes break the wire format in a way that Google's reader in C++ lets pass: it ends at a field 0 or at the
    end of a group, and it drops bits of long numbers."""
    schema = SCHEMA if schema is None else schema
    at = 0
    while at < len(bytes_):
        tag = varint(bytes_, at)
        if not tag:
            return False
        if tag[0] >> 3 == 0 or tag[0] >> 3 >= 1 << 29 or tag[2] > 5 or tag[0] & 7 in (4, 6, 7):
            return True
        at = tag[1]
        if tag[0] & 7 in (0, 2):
            number = varint(bytes_, at)
            if not number:
                return False
            if number[0] >= 1 << 64 or number[2] > 10:
                return True
            at = number[1]
            if tag[0] & 7 == 2:
                if tag[0] >> 3 in schema and illegal(bytes_[at : at + number[0]], schema[tag[0] >> 3]):
                    return True
                at += number[0]
        else:
            at += {1: 8, 5: 4}.get(tag[0] & 7, 0)
    return False


def has_bytes(found):
    """Whether a value is not UTF-8. Clients choose values, so that is not an error."""
    for one in found.get("descriptors", []):
        for _, value in one["entries"]:
            try:
                bytes.fromhex(value).decode()
            except UnicodeDecodeError:
                return True
    return False


def test_damaged_messages():
    """What protobuf rejects, the codec rejects, unless it is a value that is not UTF-8. It also rejects groups and fields with a
    wrong type, which protobuf skips."""
    rng = random.Random(SEED)
    messages = [damaged(rng) for _ in range(COUNT)]
    seen = {}
    for bytes_, found in zip(messages, read(messages)):
        what = f"TEST_SEED={SEED}: {bytes_.hex()}: {found}"
        seen[found["error"]] = seen.get(found["error"], 0) + 1
        try:
            message = RateLimitRequest.FromString(bytes_)
        except DecodeError:
            assert found["error"] in (MALFORMED, REJECTED) or has_bytes(found), what
            continue
        if found["error"] == OK:
            expect(found, wanted(message), what)
        elif found["error"] == TOO_MANY:
            assert many(message), what
        elif found["error"] == MALFORMED:
            assert illegal(bytes_), what
    assert seen[OK] > COUNT // 100 and seen[MALFORMED] > COUNT // 100, seen
