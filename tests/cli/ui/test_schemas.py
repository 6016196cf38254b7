"""The check of what `--json` prints against its schemas."""

from typing import Any

import pytest
from tests.cli.conftest import SCHEMAS, fits

JUNK: tuple[Any, ...] = ("junk", 17, None, ["junk"], {}, {"junk": 17})


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_junk_fits_none_of_the_schemas(name: str) -> None:
    for junk in JUNK:
        with pytest.raises(AssertionError):
            fits(junk, name)
