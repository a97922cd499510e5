"""HTML pages as one offline file, with a content security policy that allows only the given style and script.

    render_page("Title", f"<h1>{escape(text)}</h1>", style=BASE_STYLE)

`body` is markup: the caller escapes text. The page loads nothing, and only the given script may run: the policy names
it by its hash.
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


def render_page(
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

    script_type     "module" for a script that uses imports or await
    images          the sources of images, as in the policy's img-src
    inline_styles   allow style attributes too, as in matplotlib's figures
    """
    policy = {
        "default-src": "'none'",
        "script-src": f"'{csp_hash(script)}'" if script else "",
        "style-src": "'unsafe-inline'" if inline_styles else f"'{csp_hash(style)}'" if style else "",
        "img-src": images,
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    content = "; ".join(f"{name} {allowed}" for name, allowed in policy.items() if allowed)
    first = f'<meta http-equiv="Content-Security-Policy" content="{content}">\n{head}<style>{style}</style>'
    kind = f' type="{script_type}"' if script_type else ""
    last = f"\n<script{kind}>{script}</script>" if script else ""
    return render_shell(title, f"{body}{last}", head=first, body_class=body_class)


def render_shell(title: str, body: str, *, head: str = "", body_class: str = "") -> str:
    """The file as text, for a server that sends the policy as a header; `head` links the styles."""
    kind = f' class="{body_class}"' if body_class else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n{head}\n</head>\n<body{kind}>\n{body}\n</body>\n</html>\n"
    )


def embed_bytes(name: str, content: bytes) -> str:
    """Bytes inside a page, as base64 in a <script> element with this id."""
    encoded = base64.b64encode(content).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{encoded}</script>'


def csp_hash(text: str) -> str:
    """The hash by which a content security policy names a script or a style."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
