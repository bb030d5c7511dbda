"""An encrypted archive: nothing readable in the file, everything works, and a wrong key costs no answer."""

import os

import numpy as np
import pytest
from click.testing import CliRunner
from scripted import Upstream, archive_bytes, ask, body, config_for, http, lantern_headers, serving, wait_for
from test_archive import MINE, amiss, record
from test_backup import on_a_small_disk

from lantern_proxy.archive import Archive, ArchiveError, ForgetRule, PruneReport
from lantern_proxy.archive.file import encrypt
from lantern_proxy.archive.retention import retain
from lantern_proxy.cli import main as cli
from lantern_proxy.config import ArchiveConfig, PrivacyConfig, load
from lantern_proxy.config.check import ConfigError

pytest.importorskip("sqlcipher3")
KEY, OTHER_KEY = "ab" * 32, "cd" * 32
SECRET = "the XYLOPHONE-42 ships on friday"


def test_everything_works_and_nothing_in_the_files_can_be_read(tmp_path):
    path = tmp_path / "lantern.db"
    with Archive(path, key=KEY) as archive:
        archive.write([record(0, SECRET), record(1, "something else", session="s2")])
        for tenant, id_, _ in archive.unembedded(9):
            session = archive.of(tenant).passages_by_id([id_])[id_].session
            archive.add_vectors("m", 4, [(tenant, session, id_, np.ones(4, np.float32))])
        mine = archive.of(MINE)
        assert mine.search("xylophone")[0].passage.text == SECRET
        assert mine.vectors(range(9)).keys() == {p.id for p in mine.passages()}
        assert not amiss(archive)
        raw = archive_bytes(path)
        for text in (b"XYLOPHONE", b"xylophon", b"CREATE TABLE", b"SQLite format", b"s2"):
            assert text not in raw or text == b"s2"
        archive.forget(MINE, ForgetRule(match="XYLOPHONE"), now=1.0)
        assert not mine.search("xylophone")
    with Archive(path, key=KEY, read_only=True) as archive:
        assert len(archive.of(MINE).sessions()) == 2


def test_what_fits_the_limit_of_an_encrypted_archive_stays(tmp_path):
    path, keep = tmp_path / "lantern.db", PrivacyConfig(keep_mb=1)
    with Archive(path, key=KEY) as archive:
        archive.write([record(n, session=f"s{n}") for n in range(4)])
        assert retain(archive, keep, now=1e10) == PruneReport()
        assert len(archive.of(MINE).sessions()) == 4
        assert 0 < archive.used_bytes < 1_000_000


@pytest.mark.parametrize("key", ["", OTHER_KEY])
def test_a_wrong_key_or_none_is_told_and_the_file_left_alone(tmp_path, key):
    path = tmp_path / "lantern.db"
    with Archive(path, key=KEY) as archive:
        archive.write([record(0, SECRET)])
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match="the key is not its own") as caught:
        Archive(path, key=key)
    assert not key or key not in str(caught.value)
    assert path.read_bytes() == before


def test_a_key_that_is_none_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ArchiveError, match="64 hex digits"):
        Archive(tmp_path / "a.db", key="short' OR 1")
    monkeypatch.setenv("THE_KEY", "hunter2hunter2")
    with pytest.raises(ConfigError, match=r"archive\.key_env THE_KEY holds no key") as caught:
        ArchiveConfig(key_env="THE_KEY").key()
    assert "hunter2" not in str(caught.value)
    (tmp_path / "c.yaml").write_text("archive: {key_env: THE_KEY, key_file: key}")
    with pytest.raises(ConfigError, match=r"archive\.key_file is set beside archive\.key_env"):
        load(tmp_path / "c.yaml", {})


def test_the_proxy_serves_with_a_key_and_answers_with_a_wrong_one(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_KEY", KEY)
    with Upstream() as upstream:
        config = config_for(
            upstream, tmp_path, archive=ArchiveConfig(path=tmp_path / "l.db", hold_ms=10_000, key_env="THE_KEY")
        )
        with serving(config) as url:
            first = lantern_headers(ask(url, body(SECRET)))
            assert wait_for(lambda: http.get(f"{url}/lantern/api/search?q=XYLOPHONE-42").json())
        assert b"XYLOPHONE" not in archive_bytes(tmp_path / "l.db")
        monkeypatch.setenv("THE_KEY", OTHER_KEY)
        with serving(config) as url:
            answer = ask(url, body(SECRET, f"I heard: {SECRET}", "and?"))
            assert answer.status_code == 200
            assert "archive:unavailable" in lantern_headers(answer)["degraded"]
            assert "the key is not its own" in http.get(f"{url}/lantern/health").json()["archive"]["problem"]
        monkeypatch.setenv("THE_KEY", KEY)
        with serving(config) as url:
            wait_for(lambda: http.get(f"{url}/lantern/health").json()["archive"]["ok"])
            assert lantern_headers(ask(url, body(SECRET, f"I heard: {SECRET}", "and?")))["session"] == first["session"]


@pytest.mark.parametrize("command", [["status"], ["sessions"], ["search", "xylophone"], ["doctor", "--offline"]])
def test_commands_take_the_key_of_an_archive_from_a_variable(tmp_path, monkeypatch, command):
    path = tmp_path / "lantern.db"
    with Archive(path, key=KEY) as archive:
        archive.write([record(0, SECRET)])
    monkeypatch.setenv("ITS_KEY", KEY)
    monkeypatch.setenv("CONFIGURED", OTHER_KEY)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "c.yaml").write_text("archive: {key_env: CONFIGURED}\n")

    def run(*more: str) -> str:
        given = [*command, "--json", "--config", str(tmp_path / "c.yaml"), "--archive", str(path), *more]
        return CliRunner().invoke(cli.cli, given).output

    assert "the key is not its own" in run()
    assert "--archive-key-env" in run()
    assert MINE in run("--archive-key-env", "ITS_KEY") or command[0] == "doctor"
    assert "the key is not its own" not in run("--archive-key-env", "ITS_KEY")
    told = run("--archive-key-env", "NOTHING")
    assert "archive.key_env NOTHING holds no key" in told
    assert "put the archive's there" in told  # a new one would not open it


def test_a_plain_archive_is_encrypted_in_its_place(tmp_path, monkeypatch):
    path = tmp_path / "lantern.db"
    with Archive(path) as archive:
        archive.write([record(0, SECRET)])
        tenant, rows, version = archive.tenant_of("sk-1"), list(archive.of(MINE).export()), archive.version
    assert b"XYLOPHONE" in archive_bytes(path)
    monkeypatch.setenv("THE_KEY", KEY)
    (tmp_path / "c.yaml").write_text(f"archive: {{path: {path}, key_env: THE_KEY}}\n")
    done = CliRunner().invoke(cli.cli, ["migrate", "--encrypt", "--config", str(tmp_path / "c.yaml")])
    assert done.exit_code == 0, done.output
    assert done.output == f"{path} is at version {version} and encrypted\n"
    assert b"XYLOPHONE" not in archive_bytes(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = CliRunner().invoke(cli.cli, ["migrate", "--encrypt", "--config", str(tmp_path / "c.yaml")])
    assert (again.exit_code, "may be encrypted already" in again.output) == (1, True)
    with Archive(path, key=KEY) as archive:
        assert list(archive.of(MINE).export()) == rows
        assert archive.tenant_of("sk-1") == tenant
        assert archive.of(MINE).search("xylophone")
        assert not amiss(archive)


def test_of_a_link_the_file_is_encrypted_and_nothing_plain_stays(tmp_path):
    link = tmp_path / "link.db"
    (tmp_path / "data").mkdir()
    link.symlink_to(tmp_path / "data" / "lantern.db")
    with Archive(link) as archive:
        archive.write([record(0, SECRET)])
    encrypt(link, KEY)
    assert link.is_symlink()
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"XYLOPHONE" in file.read_bytes()]
    with Archive(link, key=KEY) as archive:
        assert archive.of(MINE).search("xylophone")


def test_a_plain_archive_is_told_from_one_with_another_key(tmp_path):
    path = tmp_path / "lantern.db"
    Archive(path).close()
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match="is not encrypted, and a key is set for it; encrypt it with"):
        Archive(path, key=KEY)
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_an_archive_that_root_encrypts_stays_its_owner_s(tmp_path):
    path = tmp_path / "lantern.db"
    with Archive(path) as archive:
        archive.write([record(0, SECRET)])
    os.chown(path, 65_534, 65_534)
    encrypt(path, KEY)
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (65_534, 0o600)


def test_an_archive_that_finds_no_room_to_be_encrypted_stays_as_it_is(tmp_path):
    (tmp_path / "l.yaml").write_text("archive: {path: small/lantern.db, key_env: ITS_KEY}")
    script = """cp big.db small/lantern.db
        "$0" -m lantern_proxy migrate --encrypt --config l.yaml; echo $?; ls -A small; cmp big.db small/lantern.db"""
    printed, told = on_a_small_disk(tmp_path, "30m", script, ITS_KEY=KEY)
    assert "lantern: archive small/lantern.db has no room: the disk is full" in told
    assert printed.splitlines() == ["1", "lantern.db"]
