"""Plugin for pytest that takes a guard of the product out, so that the test of an attack is seen to fail: `-p tests.kit.guard_switch --without NAME`.

The switch is here and in `tests/gateway/attack_table.py`; the product has none. Reasons of failures go to the file of `--failures`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.attack_table import ATTACKS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--without", default="", help="name of the row whose guard is taken out")
    parser.addoption("--failures", default="", help="file for the types of exceptions by which tests failed")


@pytest.fixture(autouse=True)
def guard_is_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the guard out for each test."""
    row = ATTACKS[str(request.config.getoption("--without"))]
    for guard, out in row.guards.items():
        monkeypatch.setattr(guard, out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Note the exception of each test that failed."""
    report = yield
    if call.excinfo is not None:
        path = Path(str(item.config.getoption("--failures")))
        found = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps([*found, [item.nodeid, call.when, call.excinfo.typename]]))
    return report
