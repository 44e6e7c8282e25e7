"""Drawn configs: each is refused in one sentence that names a field, or its training step can be made, and of some two steps are taken.

60 fixed ones in the suite; a long run of others:  python -m pytest -n 0 -s tests/test_fuzz.py --fuzz=2000
"""

import collections
import zlib

import jax
import ml_collections
import pytest
import tiny_runs as runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_jax import config as config_lib
from pe_jax import data, encodings, model, optim, parallel, progress, resolve, step
from pe_jax.errors import ConfigError, DataError
from pe_jax.selfcheck import properties

KNOWN = config_lib.flatten(config_lib.default())
LEFT_ALONE = ('data.source', 'data.tokenizer', 'init_from', 'model.platform')  # and all other fields that are free text
NUMBERS = {
  'train_length': (1, 48),
  'batch_size': (1, 32),
  'num_train_steps': (1, 50),
  'model.num_layers': (1, 3),
  'model.embed_dim': (1, 48),
  'model.num_heads': (1, 6),
  'model.num_kv_heads': (0, 6),
  'model.head_dim': (0, 16),
  'model.mlp_dim': (0, 64),
  'model.vocab_size': (0, 600),
  'model.attention_chunk': (0, 40),
  'accumulate': (1, 4),
  'mesh.data': (-1, 9),
  'mesh.fsdp': (1, 4),
  'data.block_documents': (1, 300),
}
WRONG = (-1, 0, 10**12, float('nan'), float('inf'), 'abc', True, None, -2.5, 1e-300, 3.0)


def value(field):
  """A value of a field, right or wrong."""
  example = KNOWN[field]
  if field == 'encoding':
    return encoding()
  if field == 'optim.name':
    return st.sampled_from((*optim.NAMES, 'adamx', ''))
  if field in resolve.CHOICES:
    return st.sampled_from((*resolve.CHOICES[field], *resolve.CHOICES[field], 'nonsense'))
  if isinstance(example, bool):
    return st.booleans()
  if isinstance(example, int):
    return st.one_of(st.integers(*NUMBERS.get(field, (0, 100))), st.integers(*NUMBERS.get(field, (0, 100))), st.sampled_from(WRONG))
  return st.one_of(st.floats(0, 2), st.floats(0, 1), st.sampled_from(WRONG))


def encoding():
  """One of the contract, one at drawn settings, or something that is none."""
  number = st.one_of(st.integers(-1, 20), st.floats(-1, 20).map(lambda x: round(x, 2)))
  rope = st.builds('rope(base={}, fraction={})'.format, st.sampled_from((0, 1, 2, 10_000, 5e5)), st.sampled_from((0, 0.25, 0.3, 0.5, 1, 2)))
  mapped = st.builds('{}(factor={})'.format, st.sampled_from(('linear', 'ntk', 'yarn', 'llama3', 'dynamic_ntk', 'ntk_by_parts')), number)
  tables = st.builds('learned(max_length={})'.format, st.integers(-1, 60))
  buckets = st.builds('t5(num_buckets={}, max_distance={})'.format, st.integers(0, 40), st.integers(0, 200))
  both = st.builds('{}({}, {})'.format, st.sampled_from(('stack', 'layers', 'heads')), mapped, st.sampled_from(('alibi', 'nope', 'cope')))
  none = st.sampled_from(
    ('', 'roep', 'rope(', 'rope(base="x")', 'alibi,rope', '__import__("os")', 'rope(base=10**9)', '((((', 'yarn(factor=1e400)')
  )
  known = st.sampled_from(properties.SPECS)
  return st.one_of(known, known, rope, mapped, tables, buckets, both, none)


def config():
  """{field: value} of one to six fields; the others are those of a tiny run on eight devices."""
  fields = [
    f for f, v in KNOWN.items() if f not in LEFT_ALONE and (not isinstance(v, str) or f in (*resolve.CHOICES, 'encoding', 'optim.name'))
  ]
  return st.lists(st.sampled_from(fields), min_size=1, max_size=6, unique=True).flatmap(
    lambda chosen: st.fixed_dictionaries({field: value(field) for field in chosen})
  )


def tried(changes, every):
  """'refused', 'made' or, of one in `every`, 'trained'."""
  tree = runs.config().to_dict()
  for field, given_value in changes.items():
    *path, name = field.split('.')
    (tree[path[0]] if path else tree)[name] = given_value
  try:
    c = resolve.resolve(ml_collections.ConfigDict(tree))
    parallel.check(c, jax.devices())
  except ConfigError as error:
    sentence = str(error)
    assert '\n' not in sentence
    assert sentence.partition(':')[0] in {*KNOWN, 'mesh'}, sentence
    return 'refused'
  enc, tx = encodings.make(c.encoding, model.dims(c)), optim.make(c)
  state = jax.eval_shape(lambda: step.init(c, enc, tx))
  given_state, batch = parallel.abstract(c, state, jax.devices())
  after, numbers = jax.eval_shape(step.make(c, enc, tx), given_state, batch)
  assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
  assert numbers['loss'].shape == ()
  if zlib.crc32(repr(sorted(changes.items(), key=str)).encode()) % every:
    return 'made'
  return two_steps(c, enc, tx)


def two_steps(c, enc, tx):
  """On its own data; parameters stay finite whatever the learning rate."""
  try:
    batches, _, _ = data.streams(c)
  except (ConfigError, DataError):
    return 'refused'
  spread = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), jax.devices())
  state = spread.put_state(step.init(c, enc, tx))
  for _ in range(2):
    state, _ = spread.step(state, spread.put_batch(next(batches)))
  assert all(bool(jax.numpy.isfinite(leaf).all()) for leaf in jax.tree.leaves(spread.get_state(state).params))
  return 'trained'


@pytest.mark.filterwarnings('ignore:.*ptax:DeprecationWarning')
def test_a_drawn_config_is_refused_in_a_sentence_or_its_step_can_be_made(pytestconfig):
  count = pytestconfig.getoption('--fuzz')
  fixed, counts = count <= 60, collections.Counter()
  quiet = {'deadline': None, 'database': None, 'suppress_health_check': list(HealthCheck)}
  with runs.quick_compiles(), progress.bar(count, label='fuzz', unit='config') as bar:

    @settings(max_examples=count, derandomize=fixed, **quiet)
    @given(config())
    def one(changes):
      counts[tried(changes, 8 if fixed else 40)] += 1
      bar.advance(1, str(dict(counts)))

    one()
  print(dict(counts))
  assert counts['refused'] > count / 10
  assert counts['made'] + counts['trained'] > count / 10
  assert counts['trained'] > 0
