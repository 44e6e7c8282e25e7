"""One kind of run, killed again and again and compared with the same run whole; `scripts/soak.py` says how."""

import contextlib
import dataclasses
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from pe_jax import metrics, process

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PLACES = ('torn', 'save', 'commit', 'deletion', 'eval', 'step', 'restore', 'compile')
WORDS = ('a', 'tree', 'stands', 'near', 'the', 'old', 'river', 'and', 'nobody', 'remembers', 'who', 'planted', 'it', 'there')


@dataclasses.dataclass(frozen=True)
class Cell:
  """A kind of run."""

  encoding: str
  packing: str
  accumulate: int
  steps: int = 300

  def __str__(self):
    return f'{self.encoding} {self.packing} x{self.accumulate}'


@dataclasses.dataclass
class Outcome:
  """What became of a cell: how often it was killed how, and what came out different."""

  cell: Cell
  kills: dict = dataclasses.field(default_factory=lambda: {'SIGKILL': 0, 'SIGTERM': 0})
  places: dict = dataclasses.field(default_factory=dict)
  ended: int = 0  # runs that were killed and then came to their end
  aside: int = 0  # checkpoints that a kill had left unreadable
  wrong: list = dataclasses.field(default_factory=list)


def write_corpus(folder, documents=240):
  """Short documents of words, always the same."""
  rng = random.Random(0)
  lines = [json.dumps({'text': ' '.join(rng.choices(WORDS, k=rng.randint(3, 80)))}) for _ in range(documents)]
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'words.jsonl').write_text('\n'.join(lines) + '\n')


class Trial:
  """One cell: the whole run, and the runs that are killed."""

  def __init__(self, folder, home, cell, rng, advance=lambda: None):
    self.folder, self.home, self.cell, self.rng, self.advance = folder, home, cell, rng, advance
    self.outcome = Outcome(cell)

  def run(self, kills, twice=False):
    """Kills that many times and returns the Outcome. `twice`: first sees that a run repeats itself when nobody touches it."""
    whole, cut, wrong = self.folder / 'whole', self.folder / 'cut0', self.outcome.wrong
    lasts = self.lasts(whole)
    if twice and not wrong:
      self.lasts(self.folder / 'again')
      if not wrong:
        self.compare(whole, self.folder / 'again', 'not even repeatable: ')
    done = 0
    while done < kills and not wrong:
      number, at = self.plan(done)
      code, said = self.killed(cut, number, at, lasts)
      if code == 0 or (code < 0 and (cut / 'DONE').exists()):  # it came to its end first
        self.compare(whole, cut)
        cut = self.folder / f'cut{self.outcome.ended}'
      elif code == (-signal.SIGKILL if number == signal.SIGKILL else 75):
        done += 1
        self.advance()
        self.outcome.kills[number.name] += 1
        self.outcome.places.update({at: self.outcome.places.get(at, 0) + 1} if at else {})
      else:
        wrong.append(f'{number.name} {at or "at a random moment"}: ended with {code}: {said}')
    if not wrong and cut.exists():
      code, said = self.ended(self.start(cut))
      wrong += [f'started again it ended with {code}: {said}'] if code else []
      if not code:
        self.compare(whole, cut)
    return self.outcome

  def plan(self, done):
    """(signal, place or ''): the first kill of a cell tears a row, one in three of the others is at a chosen place."""
    number = signal.SIGTERM if done and self.rng.random() < 0.25 else signal.SIGKILL
    chosen = PLACES if number == signal.SIGKILL else ('step', 'eval', 'save', 'restore', 'compile')
    return number, 'torn' if not done else self.rng.choice(chosen) if self.rng.random() < 1 / 3 else ''

  def lasts(self, workdir):
    """Trains it whole; the seconds that this takes when nothing has to be compiled."""
    code, said = self.ended(self.start(workdir))
    if code:
      self.outcome.wrong.append(f'a run that nobody touched ended with {code}: {said}')
      return 0.0
    times = [row['time'] for row in metrics.read(workdir / 'timing.jsonl')]
    return times[-1] - times[0] + 0.5

  def start(self, workdir, **more):
    """The process of a run."""
    c = self.cell
    arg = f'{c.encoding},corpus={self.home / "corpus"},packing={c.packing},accumulate={c.accumulate},steps={c.steps}'
    config = f'--config={ROOT / "scripts" / "studies" / "kill_points.py"}:{arg}'
    return self.process('train.py', config, f'--workdir={workdir}', **more)

  def process(self, script, *args, **more):
    """Compiled programs are shared, or every start would compile for seconds."""
    cache = {'JAX_COMPILATION_CACHE_DIR': str(self.home / 'compiled'), 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'}
    cache['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
    env = process.child_environment() | cache | more
    return subprocess.Popen(
      [sys.executable, str(ROOT / script), *args], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )

  def ended(self, running):
    """(exit code, last line on stderr)."""
    _, err = running.communicate(timeout=600)
    lines = [line for line in err.splitlines() if line.strip()]
    return running.returncode, lines[-1] if lines else ''

  def ready(self, workdir, running, before):
    """Waits until the process has taken hold of the folder, or is over; `before`: when env.json was last written."""
    while running.poll() is None and mtime(workdir / 'env.json') == before:
      time.sleep(0.002)

  def killed(self, workdir, number, at, lasts):
    """Starts the run and ends it: (exit code, last line on stderr)."""
    before, delay = mtime(workdir / 'env.json'), self.rng.uniform(0, 0.8 * lasts)
    if at:
      times = 1 if at in ('restore', 'compile') else self.rng.randint(1, 3)
      return self.ended(self.start(workdir, SOAK_AT=f'{number.name} {at} {times}'))
    running = self.start(workdir)
    self.ready(workdir, running, before)
    with contextlib.suppress(subprocess.TimeoutExpired):
      running.wait(delay)
    running.send_signal(number)  # nothing happens to one that is over
    return self.ended(running)

  def compare(self, whole, cut, what=''):
    """Notes what differs; removes a run that is equal."""
    differ = [name for name, of in FACTS.items() if of(whole) != of(cut)]
    rows = [self.evaluated(workdir) for workdir in (whole, cut)]
    differ += ['rows of eval.py'] if rows[0] != rows[1] else []
    self.outcome.ended += not what
    self.outcome.aside += len(list((cut / 'checkpoints_bad').glob('*')))
    if differ:
      self.outcome.wrong.append(f'{what}{cut}: {", ".join(differ)}')
    else:
      shutil.rmtree(cut)

  def evaluated(self, workdir):
    """The rows that eval.py writes."""
    path = workdir / 'eval' / 'nonoverlapping.jsonl'
    if not path.exists():
      self.ended(self.process('eval.py', f'--workdir={workdir}', '--lengths=16', '--protocols=nonoverlapping'))
    return path.read_bytes() if path.exists() else b''


def mtime(path):
  """When a file was last written, in ns; 0 if it is not there."""
  try:
    return path.stat().st_mtime_ns
  except FileNotFoundError:
    return 0


def last_record(workdir):
  """What the newest checkpoint says of its arrays and of the place in the data."""
  newest = max((p for p in (workdir / 'checkpoints').iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
  return json.loads((newest / 'progress' / 'metadata').read_text())


# What must be equal.
FACTS = {
  'parameters and final loss (DONE)': lambda workdir: (workdir / 'DONE').read_bytes(),
  'metrics.jsonl': lambda workdir: (workdir / 'metrics.jsonl').read_bytes(),
  'batches.jsonl': lambda workdir: (workdir / 'batches.jsonl').read_bytes(),
  'last checkpoint': last_record,
}
