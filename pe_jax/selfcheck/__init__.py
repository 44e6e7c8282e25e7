"""Is what this program promises true on this machine? For a GPU or a TPU that nobody has tried it on.

  python -m pe_jax selfcheck            under three minutes
  python -m pe_jax selfcheck --quick    under one

Trains the same steps three times and compares the parameters bit for bit; compares this backend's attention kernels with plain attention,
values and gradients; takes all encodings through seven properties of their contract, and twelve of them through five more; and kills a
training run three times (kill -9), which must then end with the parameters and the log of a run that was left alone. --quick trains one
encoding three times instead of three, takes none further, and kills once. What the time is not enough for is counted and named. Prints a
table that can be pasted into an issue, and exits with 1 if something does not hold. Everything is written to a temporary folder.
"""

import dataclasses
import sys
import time

SECONDS = {False: 170, True: 58}  # for everything, by --quick
FOR_KILLS = {False: 40, True: 18}  # of these, kept for the runs that are killed, however slow the rest is


@dataclasses.dataclass(frozen=True)
class Row:
  """One line of the table. `holds` is None for what was not tried, which were `count` checks, and `note` says why."""

  check: str
  holds: bool | None
  worst: str = ''
  allowed: str = ''
  note: str = ''
  seconds: float = 0.0
  count: int = 1


def main(arguments=None):
  """The command. `arguments`: those after the word 'selfcheck'; None: this process's."""
  given = sys.argv[1:] if arguments is None else list(arguments)
  given = given[1:] if given[:1] == ['selfcheck'] else given
  if any(a in ('--help', '-h') for a in given):
    print(__doc__.strip())
    return
  if wrong := [a for a in given if a != '--quick']:
    print(f"ERROR: argument '{wrong[0]}' is unknown (selfcheck takes --quick or nothing)", file=sys.stderr)
    sys.exit(2)
  from pe_jax.selfcheck import order, table

  start = time.monotonic()
  machine, rows = order.run('--quick' in given, start)
  print(table.text(machine, rows, time.monotonic() - start))
  if any(row.holds is False for row in rows):
    sys.exit(1)
