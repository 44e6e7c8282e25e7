"""Sockets of this process reach this machine and no other: what a test needs from elsewhere, a user's machine would need too."""

import ipaddress
import os
import socket

INTERNET = (socket.AF_INET, socket.AF_INET6)


def local(host):
  """Whether an address or a name is this machine's."""
  host = host.decode() if isinstance(host, bytes) else host
  if host in (None, '', 'localhost', socket.gethostname()):
    return True
  try:
    address = ipaddress.ip_address(host.partition('%')[0])
  except ValueError:
    return False
  return address.is_loopback or address.is_unspecified


def refuse(host):
  """An OSError, as without a network, with a word on who it was."""
  raise PermissionError(f'tests do not reach the network, and {host} is not this machine')


def install():
  """From now on. Unix sockets are left alone."""
  if getattr(socket, 'loopback_only', False):
    return
  socket.loopback_only = True

  def guarded(method, place):
    def call(self, *args):
      address = args[place]
      if self.family in INTERNET and isinstance(address, tuple) and not local(address[0]):
        refuse(address[0])
      return method(self, *args)

    return call

  for name, place in (('connect', 0), ('connect_ex', 0), ('sendto', -1)):
    setattr(socket.socket, name, guarded(getattr(socket.socket, name), place))
  look_up = socket.getaddrinfo

  def getaddrinfo(host, *args, **kwargs):
    if not local(host):
      refuse(host)
    return look_up(host, *args, **kwargs)

  socket.getaddrinfo = getaddrinfo


def for_children(environment):
  """Python processes started under this environment begin with `install` (sitecustomize.py)."""
  here, paths = os.path.dirname(os.path.abspath(__file__)), environment.get('PYTHONPATH', '').split(os.pathsep)
  if here not in paths:
    environment['PYTHONPATH'] = os.pathsep.join([here, *filter(None, paths)])
