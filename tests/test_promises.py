"""SECURITY.md names a test for each promise: it exists, it has a mutation, and it fails when the promise is broken."""

import ast
import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
loader = importlib.machinery.SourceFileLoader("mutations", str(ROOT / "scripts" / "mutations"))
mutations = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutations", loader))
sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
loader.exec_module(mutations)
sys.dont_write_bytecode = before
PROMISES = mutations.promises()


def test_every_promise_has_a_test_and_a_mutation():
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]
    assert len(PROMISES) == len(rows) - 2 > 20
    assert set(PROMISES) == set(mutations.MUTATIONS)


@pytest.mark.parametrize("promise", PROMISES)
def test_the_test_of_a_promise_exists(promise):
    file, _, name = PROMISES[promise].partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", PROMISES)
def test_a_mutation_stands_where_it_says(promise):
    module, here, broken = mutations.MUTATIONS[promise]
    text = (ROOT / "lantern_proxy" / module).read_text()
    assert here in text
    ast.parse(text.replace(here, broken))


def test_a_few_promises_broken_are_noticed():
    """All of them: scripts/mutations."""
    quick = ("ssrf", "key-hashes", "timing", "bind")
    done = subprocess.run([sys.executable, ROOT / "scripts" / "mutations", *quick], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 promises are held" in done.stdout


def test_the_threat_model_names_what_is_not_promised():
    text = (ROOT / "docs" / "threat-model.md").read_text()
    for heading in ("## Who is trusted", "## What is not promised", "## What reaches the model"):
        assert heading in text
