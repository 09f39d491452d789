"""Impossible settings are refused by name."""

from __future__ import annotations

import socket

import pytest

from litebert.config import build, override
from litebert.errors import ConfigError
from litebert.serve.config import ServeConfig


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("port=-1", "port"),
        ("port=70000", "port"),
        ("queue_requests=0", "queue_requests"),
        ("batch_tokens=-1", "batch_tokens"),
        ("timeout_s=0", "timeout_s"),
        ("timeout_s=nan", "timeout_s"),
        ("batch_wait_ms=-1", "batch_wait_ms"),
        ("request_tokens=100000", "request_tokens"),
        ("api_key=''", "api_key"),
        ("api_key=clé", "api_key"),
        ("time_out=3", "timeout_s"),
        ("allowed_hosts=[http://albert.example.org]", "allowed_hosts"),
        ("allowed_hosts=[albert:8000]", "allowed_hosts"),
        ("allowed_hosts=['']", "allowed_hosts"),
        ("allowed_hosts=[albert/page]", "allowed_hosts"),
    ],
)
def test_impossible_settings_are_named(setting, key):
    with pytest.raises(ConfigError, match=key):
        build(ServeConfig, override({}, [setting]))


def test_a_key_that_no_header_can_carry():
    with pytest.raises(ConfigError, match="api_key"):
        ServeConfig(api_key="a\nb")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_loopback(host, loopback):
    assert ServeConfig(host=host).is_loopback is loopback


def test_only_this_machine_by_default():
    assert ServeConfig().is_loopback
    assert ServeConfig().api_key is None


@pytest.mark.parametrize(
    ("listens", "arrived_at", "host", "answers"),
    [
        ("127.0.0.1", "127.0.0.1", "10.0.0.7", False),
        ("10.0.0.7", "10.0.0.7", "10.0.0.7:8000", True),
        ("10.0.0.7", "10.0.0.7", "10.0.0.8", False),
        ("albert.lan", "10.0.0.7", "albert.lan", True),
        ("albert.lan", "10.0.0.7", "10.0.0.7", True),
        ("127.0.0.1", "10.0.0.7", "10.0.0.7", True),  # another ASGI server, told to listen elsewhere
        ("127.0.0.1", "evil.example", "evil.example", False),  # one that repeats the header
        ("0.0.0.0", "172.17.0.2", "203.0.113.5:8000", True),  # a forwarded port: no page can rebind an address
        ("::", "::1", "[2001:db8::1]:8000", True),
        ("0.0.0.0", "10.0.0.7", socket.gethostname(), True),
        ("0.0.0.0", "10.0.0.7", "evil.example", False),
    ],
)
def test_names_that_a_server_answers_to(listens, arrived_at, host, answers):
    assert ServeConfig(host=listens).answers_to(host, arrived_at) is answers
