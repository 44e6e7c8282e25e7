"""Errors that a user can cause: one sentence each, with the numbers and the way out, and the exit code the commands return."""


class UserError(Exception):
  """Shown as one line on stderr, without a traceback."""

  exit_code = 1


class ConfigError(UserError, ValueError):
  """A setting or an argument that cannot work."""

  exit_code = 2


class DataError(UserError):
  """Text that is missing, empty, unreadable or out of range."""

  exit_code = 3


class WriteError(UserError):
  """A checkpoint or a log that could not be written, or no checkpoint that can be read."""

  exit_code = 4


class WorkdirInUse(UserError):
  """Another process trains in this folder."""

  exit_code = 5


class ConfigDiffers(UserError):
  """The folder holds a run of another configuration."""

  exit_code = 6


class NotFinite(UserError):
  """The loss or a gradient became NaN or infinite."""

  exit_code = 7


class Preempted(UserError):
  """Stopped by a signal with everything saved; the same command goes on."""

  exit_code = 75


def of_code(exit_code):
  """The class of the errors with an exit code."""
  return next((kind for kind in UserError.__subclasses__() if kind.exit_code == exit_code), UserError)
