"""`lantern bench bm25`: our index against other engines, on synthetic records, in one process.

A record has ~46 different terms of a Zipf distribution over 200,000 words; a query has 9, five of them common (in more
than 4 % of the records) and four drawn as often as they occur. Times are per call: text terms in, Python objects out.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from lantern_proxy.analyze import query_terms, terms
from lantern_proxy.bench import bm25_collections, bm25_ours
from lantern_proxy.bench.bm25_lucene import Lucene
from lantern_proxy.bench.bm25_peers import MOST_RECORDS, PEERS, how_to_install, release
from lantern_proxy.bench.bm25_records import COMMON, K, Records, Search
from lantern_proxy.bench.bm25_report import STATES, Figures, Measured, merge_figures, read_figures, show
from lantern_proxy.bench.datasets import DataError
from lantern_proxy.bench.numbers import Numbers, without_nan

T = TypeVar("T")
WORDS, MEAN_LENGTH = 200_000, 55
MIN_RECORDS = 100
"""Least number of records with both common and other words."""
TOKENS_AT_ONCE = 1 << 22
"""Tokens drawn at a time: five million records have 275 million."""


def synthetic(n: int) -> Records:
    draw = np.random.default_rng(0)
    weights = np.cumsum(1 / np.arange(1, WORDS + 1))
    lengths = np.clip(draw.normal(MEAN_LENGTH, 11, n), 5, None).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.empty(int(starts[-1]), np.int32)
    for at in range(0, len(tokens), TOKENS_AT_ONCE):
        some = tokens[at : at + TOKENS_AT_ONCE]
        some[:] = np.searchsorted(weights, draw.random(len(some)) * weights[-1])
    return Records(tokens, starts, [f"t{i:x}" for i in range(WORDS)])


def locomo(path: Path) -> tuple[Records, list[list[str]]]:
    """The turns of a LoCoMo file, and its questions, analysed. click.BadParameter if it is no such file."""
    try:
        samples = json.loads(path.read_text(encoding="utf-8-sig"))
        conversations = [one["conversation"] for one in samples]
        turns = [turn for c in conversations for k in c if isinstance(c[k], list) for turn in c[k]]
        texts = [terms(f"{turn['speaker']}: {turn['text']}") for turn in turns]
        questions = [query_terms(item["question"]) for one in samples for item in one["qa"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise click.BadParameter(f"--locomo {path} is no LoCoMo file ({error!r}); give locomo10.json") from None
    records, word_of = Records.of(texts)
    return records, [
        in_vocabulary for q in questions if (in_vocabulary := [word_of[term] for term in q if term in word_of])
    ]


def queries(records: Records, n: int) -> list[list[str]]:
    draw, df = np.random.default_rng(1), records.shares()
    common, rest = np.flatnonzero(df > COMMON), np.flatnonzero((df > 0) & (df <= COMMON))
    return [
        [
            records.words[t]
            for t in (*draw.choice(common, 5, False), *draw.choice(rest, 4, False, p=df[rest] / df[rest].sum()))
        ]
        for _ in range(n)
    ]


def synthetic_collections(sizes: Sequence[int]) -> Iterator[tuple[Records, list[list[str]]]]:
    """Records of each size in turn, and their queries."""
    for n in sizes:
        records = synthetic(n)
        yield records, queries(records, 200)


def engines_for(engines: Sequence[str], n: int) -> list[str]:
    """The engines that can take so many records."""
    return [engine for engine in engines if n <= MOST_RECORDS.get(engine, n)]


def measure(
    records: Records, questions: Sequence[Sequence[str]], engines: Sequence[str], seconds: float
) -> Iterator[Measured]:
    """seconds: most time for the queries of one engine in each state"""
    n = len(records)
    built: dict[str, tuple[Search, float]] = {}
    for engine in engines_for(engines, n):
        begun = time.perf_counter()
        built[engine] = PEERS[engine](records), (time.perf_counter() - begun) / n * 1e6
    searches = {engine: search for engine, (search, _) in built.items()}
    same = {
        engine: agreement(engine, searches["lantern"], search, questions[:20]) for engine, search in searches.items()
    }
    for state, ask in TIMED_BY_STATE.items():
        times = ask(searches, questions, seconds)
        ours = float(np.median(times["lantern"]))
        for engine, (_, build_us) in built.items():
            median, p99 = np.percentile(times[engine], [50, 99])
            yield Measured(
                engine, release(engine) or "", n, round(median, 1), round(p99, 1), round(median / ours, 2),
                round(build_us, 2), len(times[engine]), same[engine], state,
            )  # fmt: skip


Times = dict[str, list[float]]
"""Microseconds of each call, by engine."""


def in_turn(searches: dict[str, Search], questions: Sequence[Sequence[str]], seconds: float) -> Times:
    """Twenty questions go to one engine, then to the next, three rounds in total. Before each twenty the last of them
    is asked once, unmeasured."""
    times: Times = {engine: [] for engine in searches}
    for start in [*range(0, len(questions), 20)] * 3:
        for engine, search in searches.items():
            if sum(times[engine]) / 1e6 <= seconds:
                search(questions[min(start + 19, len(questions) - 1)], K)
                times[engine] += [microseconds(search, question) for question in questions[start : start + 20]]
    return times


def hot(searches: dict[str, Search], questions: Sequence[Sequence[str]], seconds: float) -> Times:
    """Each question is asked four times in a row; the first time is not measured."""
    times: Times = {engine: [] for engine in searches}
    for question in questions:
        for engine, search in searches.items():
            if sum(times[engine]) / 1e6 <= seconds:
                times[engine] += [microseconds(search, question) for _ in range(4)][1:]
    return times


def cold(searches: dict[str, Search], questions: Sequence[Sequence[str]], seconds: float) -> Times:
    """Before each question as much other memory is overwritten as the caches hold, and more. Only fifty questions,
    since overwriting takes longer than most of them."""
    times: Times = {engine: [] for engine in searches}
    other = np.zeros(bm25_ours.BUFFER_BYTES // 8, np.int64)
    for question in questions[:50]:
        for engine, search in searches.items():
            if sum(times[engine]) / 1e6 <= seconds:
                other += 1
                times[engine].append(microseconds(search, question))
    return times


TIMED_BY_STATE = dict(zip(STATES, (in_turn, hot, cold), strict=True))


def microseconds(search: Search, question: Sequence[str]) -> float:
    if isinstance(search, Lucene):
        return search.timed_us(question, K)
    begun = time.perf_counter_ns()
    search(question, K)
    return (time.perf_counter_ns() - begun) / 1e3


def agreement(engine: str, ours: Search, other: Search, questions: Sequence[Sequence[str]]) -> float:
    if engine not in ("lantern", "bm25s", "scipy"):
        return float("nan")
    same = []
    for question in questions:
        best, theirs = ours(question, K)[1], np.asarray(other(question, K)[1]).ravel()
        same.append(np.isclose(best, theirs[: len(best)], rtol=1e-4).mean())
    return round(float(np.mean(same)), 4)


def installed_engines(names: str) -> list[str]:
    """The engines to measure. click.BadParameter for an unknown one."""
    chosen = [name.strip() for name in names.split(",") if name.strip()] or list(PEERS)
    for name in chosen:
        if name not in PEERS:
            raise click.BadParameter(f"--engines {name} is not known; choose of {', '.join(PEERS)}")
    here = {name for name in chosen if release(name) is not None}
    for name in chosen:
        if name not in here:
            click.echo(f"{name}: skipped, not installed ({how_to_install(name)})", err=True)
    return ["lantern", *(name for name in chosen if name != "lantern" and name in here)]


def progress_bar(work: Iterable[T], label: str, length: int, *, quiet: bool) -> AbstractContextManager[Iterable[T]]:
    """`work` with a progress bar on stderr."""
    return click.progressbar(work, length, label, file=sys.stderr, hidden=quiet)


def compare_quality(folder: Path, engines: Sequence[str], *, as_json: bool) -> None:
    """Quality of the best ten, on published collections."""
    rows: list[bm25_collections.Quality] = []
    try:
        for each in bm25_collections.folders(folder):
            compared = bm25_collections.compare(each, engines)
            with progress_bar(compared, each.name, len(engines), quiet=as_json) as progress:
                for row in progress:
                    rows.append(row)
                    if as_json:
                        click.echo(json.dumps(asdict(row)))
    except DataError as error:
        raise click.ClickException(str(error)) from None
    if not as_json:
        click.echo(bm25_collections.table(rows))


def add_row(figures: Figures, rows: list[Any], row: Any, merge: Path | None, *, as_json: bool) -> None:
    """Add a row to those of its kind in `figures`, and at once to the file, so that nothing measured is lost."""
    rows.append(row)
    if merge is not None:
        merge_figures(merge, figures)
    if as_json:
        click.echo(json.dumps(without_nan(asdict(row))))


def add_peers(
    figures: Figures, collections: Iterable[tuple[Records, list[list[str]]]], engines: Sequence[str], seconds: float,
    merge: Path | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Measure the engines on each collection."""
    for records, questions in collections:
        rows, label = len(STATES) * len(engines_for(engines, len(records))), f"{len(records):,} records"
        with progress_bar(measure(records, questions, engines, seconds), label, rows, quiet=as_json) as measured:
            for row in measured:
                add_row(figures, figures.peers, row, merge, as_json=as_json)
        if not as_json:
            click.echo("\n".join(row.line() for row in figures.peers[-rows:]))


def add_alone(figures: Figures, sizes: Sequence[int], merge: Path | None, *, as_json: bool) -> None:
    """Measure our index alone at each size."""
    measured = (bm25_ours.measure_alone(records, queries[:100]) for records, queries in synthetic_collections(sizes))
    with progress_bar(measured, "ours alone", len(sizes), quiet=as_json) as rows:
        for row in rows:
            add_row(figures, figures.alone, row, merge, as_json=as_json)


def command_line(sizes: Sequence[int], engines: Sequence[str], seconds: float, turns: Path | None, part: str) -> str:
    """The command that makes these figures again."""
    line = f"lantern bench bm25 --records {','.join(map(str, sizes))} --engines {','.join(engines)}"
    line += f" --seconds {seconds:g}" + (f" --locomo {turns.name}" if turns else "")
    return line + (f" --part {part}" if part != "both" else "")


@click.command("bm25")
@click.option(
    "--records", "sizes", type=Numbers(MIN_RECORDS), default="5000,10000,100000", show_default=True,
    help="Sizes to measure at.",
)  # fmt: skip
@click.option("--engines", default="", help=f"Of: {', '.join(PEERS)}. Default: all that are installed.")
@click.option(
    "--seconds", default=2.0, show_default=True, type=click.FloatRange(0, min_open=True),
    help="Most time for one engine's queries at one size and state.",
)  # fmt: skip
@click.option(
    "--write", type=click.Path(path_type=Path, file_okay=False),
    help="Also write bm25.svg and the section `All figures` of bm25.md there.",
)  # fmt: skip
@click.option(
    "--locomo", "turns", type=click.Path(path_type=Path, dir_okay=False), help="Also measure on a LoCoMo file."
)
@click.option(
    "--part", type=click.Choice(["both", "peers", "ours"]), default="both", show_default=True,
    help="The comparison, what is said of ours alone, or both.",
)  # fmt: skip
@click.option(
    "--merge", type=click.Path(path_type=Path, dir_okay=False),
    help="Keep figures in this file, and show them with those that it has: for sizes that are run one by one.",
)  # fmt: skip
@click.option(
    "--collections", "judged", type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Only this: nDCG@10 on the collections of a folder (BEIR's form), beside Lucene and bm25s.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(
    sizes: list[int], engines: str, seconds: float, write: Path | None, turns: Path | None, part: str,
    merge: Path | None, judged: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure our BM25 index beside other engines.

    \b
    Example: lantern bench bm25 --records 5000,100000 --engines bm25s,tantivy
    """
    if not sizes and turns is None and judged is None:
        raise click.UsageError("nothing to measure; give sizes with --records")
    if merge is not None:
        read_figures(merge)  # before hours are spent on what it is to be merged with
    chosen = installed_engines(engines)
    if judged is not None:
        compare_quality(judged, [name for name in chosen if name in bm25_collections.ENGINES], as_json=as_json)
        return
    figures = Figures(commands=[command_line(sizes, chosen, seconds, turns, part)])
    if part != "ours":
        collections = chain([locomo(turns)] if turns else [], synthetic_collections(sizes))
        add_peers(figures, collections, chosen, seconds, merge, as_json=as_json)
    if part == "ours" or (part == "both" and not as_json):
        add_alone(figures, sizes, merge, as_json=as_json)
    if merge is not None:
        figures = read_figures(merge)
    show(figures, " ".join((__doc__ or "").split("\n\n")[1].split()), write, quiet=as_json)


if __name__ == "__main__":
    command()
