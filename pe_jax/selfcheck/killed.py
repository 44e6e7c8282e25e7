"""A training run that is killed (kill -9) and started again must end with the bits of one that is left alone."""

import json
import random
import subprocess
import sys
import time

from pe_jax.selfcheck import Row

STEPS = 120  # as in checks.config
WORDS = ('a', 'tree', 'stands', 'near', 'the', 'old', 'river', 'and', 'nobody', 'remembers', 'who', 'planted', 'it', 'there')


def rows(folder, environment, kills, end):
  """Yields the Row. `end`, of time.monotonic(), is when the time is up: what is not over by then was not tried to its end."""
  start = time.monotonic()
  corpus, whole, torn = folder / 'corpus.jsonl', folder / 'whole', folder / 'killed'
  rng = random.Random(0)
  corpus.write_text(''.join(json.dumps({'text': ' '.join(rng.choices(WORDS, k=rng.randint(3, 80)))}) + '\n' for _ in range(300)))
  check, done = f'killed {kills} time{"s" * (kills > 1)} and gone on', 0
  try:
    finish(folder, environment, whole, corpus, end)
    for n in range(kills):
      done += kill_at(folder, environment, torn, corpus, STEPS * (n + 1) // (kills + 1), end)
    finish(folder, environment, torn, corpus, end)
  except (subprocess.TimeoutExpired, RuntimeError) as error:
    late = isinstance(error, subprocess.TimeoutExpired)
    yield Row(check, None if late else False, note='the time was up' if late else str(error), seconds=time.monotonic() - start)
    return
  digests = [json.loads((run / 'DONE').read_text())['params_sha256'] for run in (whole, torn)]
  logs = [(run / 'metrics.jsonl').read_bytes() for run in (whole, torn)]
  different = [what for what, (a, b) in (('parameters', digests), ('metrics.jsonl', logs)) if a != b]
  note = f'different: {", ".join(different)}' if different else f'killed {done} times before the end'
  holds = False if different else True if done == kills else None
  yield Row(check, holds, f'{len(different)} different', '0 different', note, time.monotonic() - start)


def finish(folder, environment, workdir, corpus, end):
  """Starts or goes on with the run and waits for its end."""
  with (folder / 'training').open('w+') as errors:
    process = start_training(environment, workdir, corpus, errors)
    try:
      code = process.wait(timeout=max(0.1, end - time.monotonic()))
    finally:
      process.kill()
      process.wait()
    if code:
      errors.seek(0)
      said = [line for line in errors.read().splitlines() if line.strip()]
      raise RuntimeError(f'training ended with {code}: {said[-1][:300] if said else "without a word"}')


def kill_at(folder, environment, workdir, corpus, step, end):
  """Starts or goes on with the run and kills it when this step stands in its log; 1, or 0 if it had ended before."""
  log = workdir / 'metrics.jsonl'
  with (folder / 'training').open('w+') as errors:
    process = start_training(environment, workdir, corpus, errors)
    try:
      while process.poll() is None and not (log.exists() and f'"step": {step},' in log.read_text()):
        if time.monotonic() > end:
          raise subprocess.TimeoutExpired('training', 0)
        time.sleep(0.001)
      running = process.poll() is None
    finally:
      process.kill()
      process.wait()
  return int(running)


def start_training(environment, workdir, corpus, errors):
  """The process."""
  command = [sys.executable, '-m', 'pe_jax.selfcheck.child', 'train', str(workdir), str(corpus)]
  return subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)
