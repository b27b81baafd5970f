"""An nginx for each module of tests."""

import contextlib
import os

import pytest

from support.gateway import MODULE, Gateway

LINES_MAX = 100


def gateways(module):
    return [each for each in vars(module).values() if isinstance(each, Gateway)]


@pytest.fixture(scope="module")
def backends():
    """What has to be there before nginx is; a module may have its own."""


@pytest.fixture(scope="module", autouse=True)
def nginx(request, backends):
    """Every Gateway that stands in the module runs while its tests do. They have to end well."""
    if not os.path.exists(MODULE):
        pytest.skip("nginx-dev is missing: the module for nginx was not built")
    with contextlib.ExitStack() as stack:
        for gateway in gateways(request.module):
            stack.enter_context(gateway)
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    for gateway in gateways(item.module) if report.failed else []:
        report.sections.append(("nginx", "\n".join(gateway.errors().splitlines()[-LINES_MAX:])))
