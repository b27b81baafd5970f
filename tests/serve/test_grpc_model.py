"""Random configurations of envoyproxy/ratelimit and random calls: weir answers as the model does. tests/envoy/compare.py does
the same with the reference itself, by hand."""

import random

import pytest

from support import expect, number
from support.envoy import Client
from support.envoy_compare import Comparison, Modelled
from support.envoy_random import Calls, Configuration
from support.store import PATIENT

SEED = number("TEST_SEED", 1)
CALLS = number("TEST_COUNT", 1500)


@pytest.mark.parametrize("charge", ("each", "together"))
@pytest.mark.parametrize("where", ("here", "store"))
def test_as_the_model(service, store, folder, charge, where):
    choose = random.Random(f"{SEED} {charge} {where}")
    configuration = Configuration(choose, multipliers=True)
    calls = Calls(choose, configuration, multipliers=True, negative=True)
    configuration.write(folder)
    flags = ["--rules", f"envoy:{folder}", "--grpc", "127.0.0.1:0", "--envoy-charge", charge]
    s = service(*flags, *(("--counters", store.address, *PATIENT) if where == "store" else ()), rules=False)
    with Client(s.grpc) as envoy:
        comparison = Comparison(Modelled(configuration, charge == "together"), envoy, show=3)
        for _ in range(CALLS):
            comparison.run(calls.call())
    expect(dict(comparison.kinds), {}, f"differences, seed {SEED}")
    expect(comparison.counts["calls the same"], comparison.counts["calls"])
