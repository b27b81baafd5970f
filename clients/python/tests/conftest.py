from __future__ import annotations

import itertools
from typing import Any, Iterator

import pytest
from servers import Redis, Service

from weir import Weir

numbers = itertools.count()


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@pytest.fixture(scope="session")
def store() -> Iterator[Redis]:
    with Redis() as running:
        yield running


@pytest.fixture(scope="session")
def remote(service: Service) -> Iterator[Weir]:
    # Nothing here is to pass or fail because the machine is busy; what the deadline does is tested by itself.
    with Weir.connect(service.url, deadline=30, when_unreachable="refuse") as weir:
        yield weir


@pytest.fixture(scope="session")
def local(service: Service) -> Iterator[Weir]:
    """It counts in the cells of the service."""
    with Weir.open(rules=service.rules, cells=service.cells) as weir:
        yield weir


@pytest.fixture(params=["remote", "local"])
def weir(request: Any) -> Weir:
    found: Weir = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def key() -> str:
    """One that nobody has used."""
    return f"subject-{next(numbers)}"


@pytest.fixture
def address() -> str:
    number = next(numbers)
    return f"10.1.{number // 250}.{number % 250 + 1}"
