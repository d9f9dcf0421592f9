# SPDX-License-Identifier: Apache-2.0
"""The hook of mkdocs for links from docs/ to files of the repository outside it.

Such a link becomes the file's name, for the site has only docs/. On a plain clone the link works."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the page's text, without links that leave docs/."""
    folder = posixpath.dirname(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return f"{match[1]} (`{target[3:]}`)" if target.startswith("../") else match[0]

    return LINK.sub(inside, markdown)
