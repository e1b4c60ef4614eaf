"""Templates: requests made of events, in the language of jinja2, with limits to all they can do."""

from __future__ import annotations

from redrive.templates.names import EVENT_NAMES, event_names
from redrive.templates.template import Form, Template, compile_template

__all__ = ["EVENT_NAMES", "Form", "Template", "compile_template", "event_names"]
