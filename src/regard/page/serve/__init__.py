"""The local server of the viewer: clients run models on their own text and look at the attention."""

from regard.page.serve.app import make_app
from regard.page.serve.limits import Limits
from regard.page.serve.server import is_loopback, serve

__all__ = ["Limits", "is_loopback", "make_app", "serve"]
