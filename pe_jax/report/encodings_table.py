"""The table of encodings in README.md, made from the registry: what every record says about itself.

python -m pe_jax.report.encodings_table              prints it
python -m pe_jax.report.encodings_table README.md    rewrites what stands between its two comments in that file
"""

import importlib
import inspect
import pathlib
import re
import sys

from pe_jax.errors import ConfigError, UserError

BEGIN, END = '<!-- encodings:begin -->', '<!-- encodings:end -->'

# What a name needs to make a record: the encodings inside, or fields without a default that works.
EXAMPLES = {
  'longrope': f'longrope(factor=8, short_factor={(1,) * 8}, long_factor={(1, 1, 1, 2, 4, 8, 8, 8)})',
  'stack': 'stack(rope, alibi)',
  'layers': 'layers(rope, rope, rope, nope)',
  'heads': 'heads(nope, alibi)',
  'randomized': 'randomized(sinusoidal, range=2048)',
  'pose': 'pose(rope, range=2048)',
  'shifted': 'shifted(sinusoidal, range=2048)',
  'log_n': 'log_n(rope)',
  'ssmax': 'ssmax(rope)',
  'llama4_temperature': 'llama4_temperature(nope)',
  'drope': 'drope(rope)',
  'dape': 'dape(kerple)',
}
# The slots of base.Encoding in words, about in the order in which a forward meets them. Two slots may be one place.
PLACES = {
  'positions': 'which positions are seen',
  'embed': 'table added to embeddings',
  'rotate': 'queries and keys turned',
  'score': 'the score itself',
  'distance_bias': 'bias on scores',
  'bias': 'bias on scores',
  'token': 'a gate per token',
  'scale': 'temperature',
  'visible': 'what is visible',
  'normalise': 'instead of softmax',
}


def dims():
  """The model on which parameters are counted."""
  from pe_jax.encodings.base import Dims

  return Dims(num_heads=4, num_kv_heads=4, head_dim=16, embed_dim=64, train_length=64, num_layers=4)


def table() -> str:
  """Markdown, one row a name of the registry: plain encodings by the place where position enters, then those that hold others."""
  d = dims()
  head = '| name | where position enters | parameters | relative | length-dependent | source |\n|---|---|--:|---|---|---|'
  note = (
    f'Parameters are counted on a model of {d.num_layers} layers, width {d.embed_dim}, {d.num_heads} heads of {d.head_dim}, trained at '
    f'{d.train_length} positions. Relative: a common shift of all positions changes nothing. Length-dependent: what a token sees depends '
    'on the length of its document, so that a prefix is not a short document.'
  )
  return '\n'.join([head, *_rows(), '', note])


def _rows():
  from pe_jax import encodings

  rows = []
  for name in encodings.names():
    text = EXAMPLES.get(name, name)
    spec = encodings.parse(text)
    record = encodings.make(spec, dims())
    traits = record.traits
    cells = [f'`{text if spec.inner else name}`', places(record), _count(record)]
    cells += [_yes(traits.relative), _yes(traits.length_dependent), source(name)]
    # RoPE comes before its maps, and these before what else turns queries and keys.
    family = 0 if name == 'rope' else 1 + encodings.MAPS.index(name) if name in encodings.MAPS else 1 + len(encodings.MAPS)
    order = bool(spec.inner), [list(PLACES).index(slot) for slot in _slots(record)], family, name
    rows.append((order, '| ' + ' | '.join(cells) + ' |'))
  return [row for _, row in sorted(rows)]


def places(record) -> str:
  """Where position enters, in words; 'in 3 of 4 layers' where not in all, and under a schedule from which share of the steps on."""
  if record.schedule:
    return '; '.join(f'from {share:.1%} of the training on: {places(part)}' if share else places(part) for share, part in record.schedule)
  words = {}
  for slot in _slots(record):
    words.setdefault(PLACES[slot], _layers_with(record, slot))
  layers = dims().num_layers
  return ', '.join(w if n == layers else f'{w} in {n} of {layers} layers' for w, n in words.items()) or 'nowhere but in the causal mask'


def _slots(record):
  return [slot for slot in PLACES if _layers_with(record, slot)]


def _layers_with(record, slot):
  """In how many layers the record does this; what it does once counts for all."""
  layers = range(dims().num_layers)
  return len(layers) if getattr(record, slot) else sum(getattr(record.at_layer(n), slot) is not None for n in layers)


def _count(record):
  import jax

  shapes = jax.eval_shape(record.parameters, jax.random.PRNGKey(0))
  return str(sum(leaf.size for leaf in jax.tree.leaves(shapes)) or '–')


def _yes(holds):
  return 'yes' if holds else 'no'


def source(name) -> str:
  """A link to the first arXiv id in the docstring of an encoding's file or of a map's function; else its author and year, or '–'."""
  from pe_jax import encodings
  from pe_jax.encodings import frequency_maps

  where = getattr(frequency_maps, name) if name in encodings.MAPS else importlib.import_module(f'pe_jax.encodings.{name}')
  text = ' '.join(inspect.getdoc(where).split())
  if found := re.search(r'arXiv:(\d{4}\.\d{5})', text):
    return f'[{found[1]}](https://arxiv.org/abs/{found[1]})'
  found = re.search(r'(?:[A-Z]\w+ )*[A-Z]\w+, (?:19|20)\d\d', text)
  return found[0] if found else '–'


def rewritten(text, block) -> str:
  """The text with what stands between the two comments replaced."""
  if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
    raise ConfigError(f'the file needs {BEGIN} and then {END}, once each, around the place for the table')
  before, rest = text.split(BEGIN)
  return f'{before}{BEGIN}\n{block}\n{END}{rest.split(END)[1]}'


def main(args):
  """Prints the table, or writes it into the file named."""
  if not args:
    print(table())
    return
  for name in args:
    path = pathlib.Path(name)
    if not path.is_file():
      raise ConfigError(f"there is no file '{name}' (for instance python -m pe_jax.report.encodings_table README.md)")
    path.write_text(rewritten(path.read_text(), table()))


if __name__ == '__main__':
  try:
    main(sys.argv[1:])
  except UserError as error:
    print(f'ERROR: {error}', file=sys.stderr)
    sys.exit(error.exit_code)
