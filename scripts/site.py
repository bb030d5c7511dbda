"""Hooks of mkdocs.yml: pages and files of the site that live outside docs/, and a navigation of what exists.

On the project's pages `../SECURITY.md` is the right link; in the site that file is a page beside the others.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
BESIDE = (
    "SECURITY.md", "CHANGELOG.md", "LICENSE", "config.example.yaml", "Dockerfile", "deploy/lantern.service",
    "deploy/compose.yaml", "deploy/litestream.yml",
)  # fmt: skip
"""Taken into the site under the same path."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    config.nav = _existing(config.nav or [], docs)
    return config


def _existing(entries: list[Any], docs: Path) -> list[Any]:
    """The navigation without pages that are not there."""
    kept = []
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            target = _existing(target, docs)
        elif not (target in BESIDE or (docs / target).exists()):
            target = None
        if target:
            kept.append({title: target})
    return kept


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name in BESIDE:
        if (ROOT / name).exists():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri in BESIDE:
        return re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(r"\]\(\.\./", "](", markdown)
