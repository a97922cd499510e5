"""The viewer: a record of attention as one offline file, as a page of the local server, or in a notebook."""

from typing import TYPE_CHECKING

from regard.lazy import Home, door

if TYPE_CHECKING:
    from regard.page.render import Exhibit, save_gallery, save_page
    from regard.page.view import AttentionWidget, View, expect_ending, look

__all__ = [
    "AttentionWidget",
    "Exhibit",
    "View",
    "expect_ending",
    "look",
    "save_gallery",
    "save_page",
]

_HOMES: dict[str, Home] = {
    "AttentionWidget": ("regard.page.view", "AttentionWidget"),
    "Exhibit": ("regard.page.render", "Exhibit"),
    "View": ("regard.page.view", "View"),
    "expect_ending": ("regard.page.view", "expect_ending"),
    "look": ("regard.page.view", "look"),
    "save_gallery": ("regard.page.render", "save_gallery"),
    "save_page": ("regard.page.render", "save_page"),
}

__getattr__ = door(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
