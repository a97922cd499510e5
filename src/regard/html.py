"""A page as one HTML file that needs no network: its head, its content security policy, its style, its script.

    page("Title", f"<h1>{escape(text)}</h1>", style=BASE_STYLE)

`body` is markup: whatever was read from elsewhere is escaped by who writes it. Nothing is ever loaded, and only the
script that is given may run: the policy names it by its checksum.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape

BASE_STYLE = """
:root { color-scheme: light dark; --ground: #fbfbfa; --ink: #1d2330; --faint: #596273; --line: #dfe2e8 }
:root { --accent: #2b5fc2 }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171d; --ink: #e7e9ee; --faint: #a3acbb; --line: #323845; --accent: #8db4ff }
}
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
body { margin: 3rem auto; max-width: 48rem; padding: 0 1.5rem; overflow-wrap: break-word }
a { color: var(--accent) }
.faint, small { color: var(--faint) }
"""


def page(
    title: str,
    body: str,
    *,
    style: str = "",
    script: str = "",
    script_type: str = "",
    images: str = "",
    inline_styles: bool = False,
    head: str = "",
    body_class: str = "",
) -> str:
    """The file as text.

    `script_type`: "module" for one that uses imports or await; `images`: where images may come from, as img-src says
    it; `inline_styles`: style attributes count too, as figures of matplotlib have them.
    """
    policy = {
        "default-src": "'none'",
        "script-src": f"'{checksum(script)}'" if script else "",
        "style-src": "'unsafe-inline'" if inline_styles else f"'{checksum(style)}'" if style else "",
        "img-src": images,
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    told = "; ".join(f"{name} {allowed}" for name, allowed in policy.items() if allowed)
    first = f'<meta http-equiv="Content-Security-Policy" content="{told}">\n{head}<style>{style}</style>'
    kind = f' type="{script_type}"' if script_type else ""
    last = f"\n<script{kind}>{script}</script>" if script else ""
    return shell(title, f"{body}{last}", head=first, body_class=body_class)


def shell(title: str, body: str, *, head: str = "", body_class: str = "") -> str:
    """The same around markup that names its own styles and scripts, for a server that sends a policy with them."""
    kind = f' class="{body_class}"' if body_class else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n{head}\n</head>\n<body{kind}>\n{body}\n</body>\n</html>\n"
    )


def data_block(name: str, content: bytes) -> str:
    """Bytes inside a page, which a script finds by this id, as base64."""
    numbers = base64.b64encode(content).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{numbers}</script>'


def checksum(text: str) -> str:
    """As a content security policy names a script or a style."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
