"""The viewer of a record: one offline HTML file, a page of the local server, or a notebook widget."""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.page.render import GalleryItem as GalleryItem, save_gallery as save_gallery, save_page as save_page
    from regard.page.view import (
        AttentionWidget as AttentionWidget,
        View as View,
        expect_suffix as expect_suffix,
        look as look,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "render": ("GalleryItem", "save_gallery", "save_page"),
        "view": ("AttentionWidget", "View", "expect_suffix", "look"),
    },
)
