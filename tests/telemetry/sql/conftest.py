"""One desk for all tests of a module: whatever one test does to it, the next must be answered."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.telemetry.sql.asking import House

SECRET = "hunter2-in-a-file"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    directory = tmp_path_factory.mktemp("house")
    (directory / "secret.csv").write_text(f"a\n{SECRET}\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FAIRLEAD_TOKEN", SECRET)
        house = House(directory)
        yield house
        await house.close()
