"""Units, settings, errors and metrics: what users type and what they get told."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base import errors
from headrace.base.errors import HeadraceError, InputError, NotFoundError, SettingError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.base.units import format_bytes, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512MB", 512_000_000), ("1.5GiB", 1_610_612_736), ("4 KiB", 4096), ("10k", 10_000), (77, 77)],
)
def test_sizes_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("250ms", 0.25), ("5m", 300), ("2h", 7200), (1.5, 1.5)])
def test_durations_as_people_write_them(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 2", "five", "1XB", "1e9", "nan", "٣MB"])
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingError, match=r"cache\.size"):
        parse_bytes(text, name="cache.size")
    with pytest.raises(SettingError):
        parse_seconds(text if text != "1e9" else "1e")


@given(st.integers(0, 10**17))
def test_formatted_sizes_are_near_what_they_say(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.006)


@given(st.floats(1e-6, 1e6))
def test_formatted_durations_are_short(seconds: float) -> None:
    assert 0 < len(format_seconds(seconds)) <= 8


def test_later_settings_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.base.settings.user_file", lambda: tmp_path / "user.toml")
    (tmp_path / "user.toml").write_text('home = "s3://user/home"\n[cache]\nsize = "1GB"\nblock = "1MiB"\n')
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "headrace.toml").write_text('[cache]\nsize = "2GB"\n[mounts."/d"]\nurl = "s3://b/p"\n')
    settings = Settings.load(tmp_path / "a" / "b", {"HEADRACE_FETCH_DEADLINE": "5s", "HEADRACE_FETCH_HEDGE": "off"})
    assert settings.home == "s3://user/home"
    assert (settings.cache.size, settings.cache.block) == (2_000_000_000, 1_048_576)
    assert (settings.fetch.deadline, settings.fetch.hedge) == (5.0, False)
    assert settings.mounts["/d"]["url"] == "s3://b/p"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[cache]\nsise = 1", "did you mean 'size'"),
        ("[cach]\nsize = 1", "did you mean 'cache'"),
        ("[cache]\nsize = 'lots'", "cache.size"),
        ("cache = 3", "must be a table"),
        ("[cache\n", "not valid TOML"),
        ("home = 3", "home"),
        ("[fetch]\nhedge = 'maybe'", "neither true nor false"),
        ("[fetch]\nconnections = -1", "fetch.connections"),
        ("[mounts]\n'/a' = 's3://b'", "must be a table"),
    ],
)
def test_a_wrong_file_is_answered_with_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "headrace.toml").write_text(text)
    with pytest.raises(SettingError, match=says) as caught:
        Settings.load(tmp_path, {})
    assert caught.value.path == str(tmp_path / "headrace.toml")


def test_a_wrong_variable_is_answered_with_its_name() -> None:
    with pytest.raises(SettingError) as caught:
        Settings.load("/", {"HEADRACE_CACHE_SIZE": "many"})
    assert caught.value.path == "HEADRACE_CACHE_SIZE"


def test_every_error_has_its_own_code_and_an_exit_code() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, HeadraceError)]
    assert len({k.code for k in kinds}) == len(kinds)
    assert all(k.exit_code for k in kinds)


def test_errors_survive_pickling_whole() -> None:
    error = NotFoundError("is not there", path="s3://b/k", hint="look elsewhere")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is NotFoundError
    assert str(again) == str(error) == "s3://b/k: is not there (look elsewhere)"
    assert InputError("x").at("p").at("q").path == "p"


def test_metrics_add_up_over_threads() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(1000):
            metrics.add("n")
        metrics.add("level", 5)
        metrics.add("level", -5)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.snapshot() == {"n": 8000, "level": 0}
    assert metrics.get("never") == 0
