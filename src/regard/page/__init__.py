"""The viewer: a record of attention as one offline file, as a page of the local server, or in a notebook."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.page.render import Exhibit as Exhibit, save_gallery as save_gallery, save_page as save_page
    from regard.page.view import (
        AttentionWidget as AttentionWidget,
        View as View,
        expect_ending as expect_ending,
        look as look,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "render": ("Exhibit", "save_gallery", "save_page"),
        "view": ("AttentionWidget", "View", "expect_ending", "look"),
    },
)
