"""From `module:name` to the app it names."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from redrive.app.redrive import Redrive
from redrive.errors import ConfigurationError, NotFoundError, RedriveError

__all__ = ["load_app"]


def load_app(target: str) -> Redrive:
    """Import a module, from the current folder too, and return the app in it.

    Raises `ConfigurationError` or `NotFoundError` with one sentence that says what is wrong.
    """
    module_name, separator, name = target.partition(":")
    if not (separator and module_name and name):
        raise ConfigurationError(
            f"{target!r} does not name an app; write the module and the variable, "
            "such as shop:app for `app` in shop.py."
        )
    module = _import(module_name, target)
    apps = [key for key, value in vars(module).items() if isinstance(value, Redrive)]
    found = getattr(module, name, None)
    if isinstance(found, Redrive):
        return found
    if hasattr(module, name):
        raise ConfigurationError(
            f"{target} is not a Redrive app but {_kind(found)}; {_advice(module_name, apps)}"
        )
    close = difflib.get_close_matches(name, apps, n=1) or apps
    raise NotFoundError(f"{module_name} has no {name!r}; {_advice(module_name, close)}")


def _import(name: str, target: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except RedriveError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotFoundError(_no_module(name, error.name, target, folder)) from error
        raise NotFoundError(
            f"The module {name!r} cannot be imported: it needs {error.name!r}, which is not "
            f"there{_place(error)}. Install it, or correct the import."
        ) from error
    except (Exception, SystemExit) as error:
        raise NotFoundError(
            f"The module {name!r} cannot be imported: {_summary(error)}{_place(error)}."
        ) from error


def _no_module(name: str, missing: str, target: str, folder: str) -> str:
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        return f"{target!r} names a file; write the module, {module}:{target.partition(':')[2]}."
    return (
        f"There is no module {missing!r} in {folder} or on Python's path; run the command in the "
        "folder that holds it, or set PYTHONPATH."
    )


def _summary(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}".rstrip(": .")


def _place(error: BaseException) -> str:
    """Say where the user's code raised it; the machinery of importing is left out."""
    if isinstance(error, SyntaxError) and error.filename:
        return ""  # its message says so already
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in _MACHINERY
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _kind(value: object) -> str:
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    return f"the class {name}" if isinstance(value, type) else f"a {name}"


def _advice(module: str, apps: list[str]) -> str:
    if apps:
        return f"did you mean {' or '.join(f'{module}:{app}' for app in apps)}?"
    return f"there is no app in it; make one with app = Redrive(...) in {module}."


_MACHINERY = (__file__, importlib.__file__)
