"""scripts/: real bash, real venv and real pip, on a small project of the same name that needs no network."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = [*(ROOT / "scripts" / name for name in ("environment", "run", "test", "check")), ROOT / ".ci" / "run"]

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "lantern-proxy"
version = "1"
"""
BACKEND = '''
"""A build backend without dependencies: an editable wheel with the console script `lantern`, which prints its call."""
import zipfile
from pathlib import Path

INFO = "lantern_proxy-1.dist-info/"
FILES = {
    "small.pth": str(Path(__file__).parent),
    INFO + "METADATA": "Metadata-Version: 2.1\\nName: lantern-proxy\\nVersion: 1\\nProvides-Extra: dev\\n",
    INFO + "WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    INFO + "entry_points.txt": "[console_scripts]\\nlantern = small:main\\n",
}


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "lantern_proxy-1-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
        wheel.writestr(INFO + "RECORD", "".join(f"{path},,\\n" for path in FILES))
    return name
'''
SMALL = "import os, sys\n\n\ndef main():\n    print(os.getcwd(), *sys.argv[1:])\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The small project, installed once by scripts/environment."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "scripts", root / "scripts")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "small.py").write_text(SMALL)
    (root / "constraints.txt").write_text("")
    first = call(root / "scripts" / "environment", "", cwd=root.parent)
    assert first.returncode == 0, first.stderr
    assert "making .venv" in first.stderr
    return root


def call(*command, cwd, **environ):
    environ = {**os.environ, "PYTHON": sys.executable, "PIP_NO_INDEX": "1", "LANTERN_EXTRAS": ""} | environ
    return subprocess.run(list(map(str, command)), cwd=cwd, env=environ, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: "/".join(p.parts[-2:]))
def test_a_script_can_be_run_stops_at_the_first_error_and_is_valid_bash(script):
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], capture_output=True).stderr == b""


def test_the_second_time_nothing_is_made_or_installed(project, tmp_path):
    again = call(project / "scripts" / "environment", "", cwd=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_run_serves_with_its_arguments_in_the_folder_it_was_called_from(project, tmp_path):
    served = call(project / "scripts" / "run", "--port", "9000", cwd=tmp_path)
    assert served.stdout.split() == [str(tmp_path), "serve", "--port", "9000"]


def test_a_change_of_what_is_installed_installs_again(project, tmp_path):
    with (project / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    changed = call(project / "scripts" / "environment", "", cwd=tmp_path)
    assert "installing" in changed.stderr
    assert "making" not in changed.stderr
    assert call(project / "scripts" / "environment", "", cwd=tmp_path).stderr == ""


def test_at_a_terminal_the_installation_shows_its_progress(project):
    with (project / "constraints.txt").open("a") as file:
        file.write("# changed again\n")
    ours, theirs = os.openpty()
    environ = {**os.environ, "PIP_NO_INDEX": "1"}
    command = [str(project / "scripts" / "environment"), ""]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=theirs, timeout=120)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        assert b"Successfully installed lantern-proxy-1" in terminal.read(65_536)
    assert (done.returncode, done.stdout) == (0, b"")  # what `lantern serve --json` prints stands alone


def test_run_serves_without_an_extra_that_cannot_be_installed(project, tmp_path):
    served = call(project / "scripts" / "run", cwd=tmp_path, LANTERN_EXTRAS="dense")
    assert "cannot be installed here; serving without it" in served.stderr
    assert served.stdout.split() == [str(tmp_path), "serve"]


def test_without_a_python_that_is_new_enough_it_says_what_is_needed(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    refused = call(tmp_path / "scripts" / "environment", "", cwd=tmp_path, PYTHON="/bin/false")
    assert refused.returncode != 0
    assert "needs Python 3.11 or newer" in refused.stderr
    assert not (tmp_path / ".venv").exists()


def test_ci_ends_with_the_tests_so_that_their_summary_is_the_last_line():
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line]
    assert lines[-2:] == ["scripts/check", "exec scripts/test"]
    assert (ROOT / "scripts" / "test").read_text().rstrip().endswith('exec .venv/bin/python -m pytest "$@"')


@pytest.mark.parametrize(
    "name",
    ["mutations", "ablation", "weights.py", "enrichment.py", "late_projection.py", "alike_table.py", "late_words.py"],
)
def test_a_script_tells_what_it_does(name):
    path = ROOT / "scripts" / name
    told = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    purpose = path.read_text("utf-8").partition('"""')[2].partition("\n")[0]
    assert purpose in told.stdout
    assert told.stdout.startswith(f"usage: {name}")


def test_each_list_that_the_ablation_switches_off_is_where_it_says():
    lists = runpy.run_path(str(ROOT / "scripts" / "ablation"))["LISTS"]
    found = [getattr(import_module(f"lantern_proxy.{module}"), name, None) for name, module in lists.items() if module]
    assert [type(each) for each in found] == [re.Pattern] * (len(lists) - 1)
