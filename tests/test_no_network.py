"""Tests reach this machine and no other, in the processes that they start too."""

import socket
import subprocess
import sys

import pytest


def test_a_test_cannot_reach_the_network():
  for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET6, socket.SOCK_STREAM)):
    with socket.socket(family, kind) as one, pytest.raises(PermissionError, match='tests do not reach the network'):
      one.connect(('192.0.2.1' if family == socket.AF_INET else '2001:db8::1', 80))
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, pytest.raises(PermissionError, match='tests do not reach'):
    one.sendto(b'x', ('192.0.2.1', 53))
  with pytest.raises(PermissionError, match=r'example\.com is not this machine'):
    socket.getaddrinfo('example.com', 80)


def test_this_machine_can_be_reached():
  with socket.socket() as server:
    server.bind(('127.0.0.1', 0))
    server.listen()
    with socket.create_connection(('localhost', server.getsockname()[1]), timeout=5):
      pass
  a, b = socket.socketpair()
  with a, b:
    a.sendall(b'x')
    assert b.recv(1) == b'x'


def test_a_process_that_a_test_starts_cannot_either():
  code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=30, check=False)
  assert 'PermissionError: tests do not reach the network, and 192.0.2.1 is not this machine' in done.stderr
