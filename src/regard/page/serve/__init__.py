"""The page over HTTP, on this machine: clients put text to models and look at what they attend to."""

from regard.page.serve.app import make_app
from regard.page.serve.limits import Limits
from regard.page.serve.server import is_loopback, serve

__all__ = ["Limits", "is_loopback", "make_app", "serve"]
