"""What a worker process of these tests imports: the app and the folder that its caller chose."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults import apps
from tests.faults.disk import Disk
from tests.faults.mortality import make_mortal

__all__ = ["app"]

_folder = Path(os.environ["REDRIVE_TEST_FOLDER"])
_disk = Disk(_folder).mount() if "REDRIVE_TEST_DISK" in os.environ else None
if "REDRIVE_TEST_MORTAL" in os.environ:
    make_mortal(_folder)
_make: apps.App = getattr(apps, os.environ["REDRIVE_TEST_APP"])
app = _make(_folder)
