"""The direction of imports, as a dict: a module may import what its row lists, no more."""

import ast
import re
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "lantern_proxy"

CORE = {
    "turn",
    "wire",
    "history",
    "session",
    "compaction",
    "follow",
    "chunk",
    "analyze",
    "rank",
    "route",
    "signals",
    "pack",
    "trust",
    "reinforce",
}
EDGES = {"bm25", "compiled", "embed", "rerank", "archive", "config"}
SURFACES = {"logs", "restore", "proxy", "upstream", "access", "admin", "bench", "tune", "demo", "memory", "trace"}

MAY_IMPORT: dict[str, set[str]] = {
    "turn": set(),
    "wire": {"turn"},
    "history": {"turn"},
    "session": {"turn", "history", "analyze"},
    "compaction": {"turn", "history", "analyze"},
    "follow": {"turn", "history", "session", "compaction"},
    "chunk": {"turn", "analyze"},
    "analyze": {"_bm25"},
    "rank": set(),
    "route": {"analyze"},
    "signals": {"analyze", "rank", "_bm25"},
    "pack": {"turn"},
    "reinforce": set(),
    "mapped": set(),
    "bm25": {"_bm25", "analyze", "mapped"},
    "compiled": set(),
    "embed": {"compiled", "signals"},
    "rerank": {"compiled", "_bm25"},
    "locked": set(),
    "archive": {"turn", "migrations", "mapped", "locked"},
    "upstream": {"config", "wire"},
    "config": {"route"},
    "restore": CORE | {"bm25", "embed", "rerank", "archive", "config"},
    "redact": {"turn"},
    "session_rows": {"turn", "history", "compaction", "archive"},
    "trust": {"turn"},
    "proxy": CORE | {"redact", "session_rows", "config", "restore", "archive", "bm25", "compiled", "embed", "upstream"},
    "access": {"config", "wire", "locked"},
    "trace": {"config"},
    "app": {"config", "access", "proxy", "admin", "trace", "embed", "restore", "upstream", "wire"},
    "admin": {"turn", "wire", "chunk", "reinforce", "config", "access", "archive", "restore"},
    "bench": CORE | {"bm25", "compiled", "embed", "rerank", "archive", "restore", "config", "tune"},
    "tune": {"rank", "route", "embed", "archive", "config", "restore", "bench"},
    "logs": {"turn"},
    "demo": {"turn", "config", "app", "archive"},
    "memory": CORE | {"config", "redact", "session_rows", "archive", "embed", "restore", "upstream"},
    "cli": CORE | EDGES | SURFACES | {"app"},
    "__init__": {"memory"},
    "__main__": {"cli"},
}
"""Module -> what it may import of the package. A package (wire, admin) counts as one module, and so do parts split off
a module: archive/rows.py has the row of archive."""

IMPURE = {"asyncio", "httpx", "os", "random", "secrets", "socket", "sqlite3", "subprocess", "threading", "time"}
"""The core takes values and returns values: no I/O, no clock, no chance."""

HEAVY = {"litellm", "torch", "sentence_transformers", "optimum", "transformers", "onnxruntime"}
"""Seconds to import: only inside functions, so that `lantern --help` answers at once."""

MODULES = sorted(p for p in PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    """lantern_proxy/wire/sse.py -> wire."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def row_of(module: str) -> str:
    """archive_rows -> archive; a module with a row of its own keeps it."""
    return module if module in MAY_IMPORT else module.lstrip("_").partition("_")[0]


def imports(tree: ast.AST, path: Path) -> set[str]:
    """Dotted names of everything a piece of code imports; relative imports are made absolute."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                home = ["lantern_proxy", *path.relative_to(PACKAGE).parts[:-1]]
                origin = ".".join([*home[: len(home) - node.level + 1], *([origin] if origin else [])])
            found |= {f"{origin}.{alias.name}" for alias in node.names}
    return found


def at_import(tree: ast.Module) -> ast.Module:
    """The statements that run when the module is imported: bodies of functions and TYPE_CHECKING blocks are dropped."""

    class Drop(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return Drop().visit(tree)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_row_lists(path):
    module = module_of(path)
    row = row_of(module)
    assert row in MAY_IMPORT, f"{module} has no row in MAY_IMPORT; add one, with the least that it needs"
    for name in imports(parse(path), path):
        if name.startswith("lantern_proxy.") and name != "lantern_proxy.__version__":
            target = row_of(name.split(".")[1])
            assert target == row or target in MAY_IMPORT[row] or name.split(".")[1] in MAY_IMPORT[row], (
                f"{path.name} imports {name}; {row} may import {sorted(MAY_IMPORT[row]) or 'nothing of the package'}"
            )


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_are_imported_inside_functions_only(path):
    top = {name.partition(".")[0] for name in imports(at_import(parse(path)), path)}
    assert not top & HEAVY, f"{path.name} imports {sorted(top & HEAVY)} at the top; import it where it is used"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if row_of(module_of(p)) in CORE], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_the_core_does_no_io_and_reads_no_clock(path):
    top = {name.partition(".")[0] for name in imports(parse(path), path)}
    assert not top & IMPURE, f"{path.name} imports {sorted(top & IMPURE)}; take the value as an argument"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_says_in_its_first_line_what_it_is_for(path):
    first = (ast.get_docstring(parse(path)) or "").partition("\n")[0]
    assert first.endswith((".", "?")), f"docs/code.md shows this line alone: {first!r}"


ROOT = PACKAGE.parent
TEXTS = [*MODULES, ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "native").glob("*.[ch]")]
NAMED = re.compile(r"(?<![\w/.-])\w[\w/]*\.py\b")
EXAMPLES = {"src/billing/invoice.py", "d.py"}  # of what people may have


def test_a_module_that_a_text_names_is_there():
    there = [
        *MODULES,
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "scripts").glob("*.py"),
        *(ROOT / "native").glob("*.py"),
    ]
    ends = {"/".join(path.parts[-n:]) for path in [*there, *(ROOT / "migrations").glob("*.py")] for n in (1, 2, 3)}
    named = {(path.name, name) for path in TEXTS for name in set(NAMED.findall(path.read_text("utf-8"))) - EXAMPLES}
    assert len(named) > 100
    assert sorted(pair for pair in named if pair[1] not in ends) == []


def test_the_package_itself_imports_nothing_until_it_is_asked():
    import subprocess

    code = "import sys, lantern_proxy; print(*(m for m in sys.modules if m.startswith('lantern_proxy.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


@pytest.mark.parametrize("package", [p.parent for p in MODULES if p.name == "__init__.py" and p.parent != PACKAGE])
def test_what_a_package_holds_does_not_hide_a_module_of_it(package):
    """`from lantern_proxy.archive import forget` must not be a module here and a function there."""
    from importlib import import_module

    home = f"lantern_proxy.{package.name}"
    for path in package.glob("[a-z]*.py"):
        assert getattr(import_module(home), path.stem, None) in (None, import_module(f"{home}.{path.stem}"))
