"""What a tool prints by the row is told from what it says."""

import pytest

from lantern_proxy.analyze.tool_output import rows

ROWS = {
    "log": [f"2026-03-0{n}T10:0{n}:12.104Z INFO  [web-{n}] request {n}f{n}a9 served in {n}1 ms" for n in range(1, 7)],
    "hashes": [f"{n}f31c0{n} store: drop the {word}" for n, word in enumerate(("cart", "lease", "quota", "shard"), 1)],
    "listing": [f"-rw-r--r-- 1 dev dev  {n}120 Mar  {n} 10:0{n} order_{n}.go" for n in range(1, 6)],
    "matches": [f"internal/{word}/cache.go:{n}7: return nil" for n, word in enumerate(("a", "b/c", "d", "e_f"), 1)],
    "table": [f" {n}00 | paid | 2026-03-0{n}" for n in range(1, 6)],
    "tests": [line for n in range(4) for line in (f"=== RUN   TestOrder{n}", f"--- PASS: TestOrder{n} (0.0{n}s)")],
    "progress": [f"Fetching part {n} ... {25 * n}% |{'#' * 9}| 12 MB/s" for n in range(1, 5)],
    "replicas": [f"Waiting for rollout: {n} of 6 replicas are new" for n in range(1, 5)],
    "source": [
        f"{n:>6}\u2192{line}" for n, line in enumerate(("def take(self):", "    # Ada wrote it", "", "    go()"), 80)
    ],
    "names": [f"reset {word}_id_seq to {n}000" for n, word in enumerate(("cart", "lease", "quota", "shard"), 1)],
    "keys": [f"  {word}_ms: {n}50" for n, word in enumerate(("drain", "hold", "poll", "wait"), 1)],
    "change": ["@@ -1,4 +1,5 @@ def take():", " the old line", "-port = 1", "+port = 2", " and its end"],
}
"""Lines of outputs, all of them rows."""


def prose_lines(text: str, **more: bool) -> list[str]:
    """Lines of a text that are no rows."""
    printed = {text[a:b] for a, b in rows(text, **more)}
    return [line for line in text.split("\n") if line not in printed]


@pytest.mark.parametrize("sort", ROWS)
def test_lines_that_are_like_each_other_are_rows(sort):
    assert prose_lines("\n".join(ROWS[sort])) == []


@pytest.mark.parametrize("sort", ["log", "hashes", "listing", "matches", "table", "tests", "replicas"])
@pytest.mark.parametrize(
    "alone",
    ["2026-03-04T10:04:13.000Z ERROR pool exhausted after 3000 ms", "fatal: the volume is full", "--- FAIL: TestTake"],
)
def test_what_stands_alone_among_rows_is_none(sort, alone):
    assert prose_lines("\n".join([*ROWS[sort][:3], alone, *ROWS[sort][3:]])) == [alone]


@pytest.mark.parametrize(
    "text",
    [
        "The build failed.\nIt wants Java 21.\nThe machine has Java 17.\nNobody installed the newer one.",
        "cause  | count\n-------+------\nTIMEOUT | 2917\nREFUSED | 12",
        "tests: 3 passed\ntook 14 s\nreport in out/report.html",
        "",
    ],
)
def test_what_is_said_is_no_row(text):
    assert rows(text) == []


def test_two_lines_are_rows_where_an_output_goes_on():
    text = "9f31c02 store: drop the cart\n77ab0e1 store: drop the lease"
    assert (len(prose_lines(text)), len(prose_lines(text, continued=True))) == (2, 0)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "jobs.CommitError: the lease on pool 7 is gone\n\tat org.pool.Lease.renew(Lease.java:88)\n"
            "\tat com.quay.Worker.run(Worker.java:142)\n\tat com.quay.Main.main(Main.java:12)\n\t... 14 more\n"
            "Caused by: net.Refused: volume vol-7716 is full\n\tat net.Socket.open(Socket.java:5)",
            ["jobs.CommitError: the lease on pool 7 is gone", "\tat org.pool.Lease.renew(Lease.java:88)",
             "Caused by: net.Refused: volume vol-7716 is full", "\tat net.Socket.open(Socket.java:5)"],
        ),
        (
            "Traceback (most recent call last):\n  File \"/app/main.py\", line 9, in main\n    run(jobs)\n"
            "  File \"/app/jobs.py\", line 31, in run\n    raise Full(volume)\njobs.Full: vol-7716",
            ["Traceback (most recent call last):", "    run(jobs)", "  File \"/app/jobs.py\", line 31, in run",
             "    raise Full(volume)", "jobs.Full: vol-7716"],
        ),
    ],
)  # fmt: skip
def test_of_a_stack_trace_the_errors_and_their_innermost_frames_are_no_rows(text, kept):
    assert prose_lines(text) == kept
