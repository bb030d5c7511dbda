"""Calls that only look, or write files, are told from others."""

import pytest

from lantern_proxy.analyze.tool_calls import is_redundant_call


@pytest.mark.parametrize(
    ("tool", "arguments", "redundant"),
    [
        ("Read", "src/main.py", True),
        ("list_directory", "path: src", True),
        ("metricsQuery", "expr: rate(errors[5m])", True),
        ("Bash", "git log --oneline | head -20", True),
        ("Bash", "cd shop && grep -rn 'take(' src 2>/dev/null | sort | uniq -c", True),
        ("shell", "kubectl -n shop get pods -o wide", True),
        ("shell", "kubectl exec web-1 -- df -h /data", True),
        ("shell", "psql -h db.local -c 'select count(*) from orders'", True),
        ("Bash", "psql -h db.local -c 'drop table orders'", False),
        ("Bash", "git tag -s v3.8.7", False),
        ("Bash", "git checkout file", False),
        ("Bash", "sed -i s/80/81/ conf", False),
        ("Bash", "cat > notes.txt", False),
        ("Bash", "grep port conf && make install", False),
        ("Edit", "file_path: src/main.py, new: pass", True),
        ("apply_patch", "*** Begin Patch\n*** Update File: src/main.py\n+pass", True),
        ("Write", "content: some words\nfile_path: notes.txt", True),
        ("create_ticket", "title: The pool is full", False),
        ("Bash", "", False),
    ],
)
def test_calls_that_look_or_write_files_are_told_from_calls_that_do_something_else(tool, arguments, redundant):
    assert is_redundant_call(tool, arguments) == redundant


def test_what_is_written_into_a_file_is_known_in_its_later_parts_too():
    assert is_redundant_call("Write", "and its last line", continued=True)
    assert not is_redundant_call("Bash", "make install", continued=True)
