"""Two layers, 64 positions, byte-level, on the Python standard library's sources: what `make demo` trains, once for each encoding.

python train.py --config=configs/quickstart.py:alibi --workdir=runs/alibi
"""

from pe_jax.config import default, parse_arg


def get_config(arg=''):
  """`:<encoding>,train_length=64,steps=1000,seed=0`."""
  arg = parse_arg(arg, encoding='rope', train_length=64, steps=1000, seed=0)
  c = default()
  c.encoding = arg.encoding
  c.train_length = arg.train_length
  c.seed = arg.seed
  c.num_train_steps = arg.steps
  c.batch_size = 64
  c.model.num_layers = 2
  c.model.embed_dim = 64
  c.model.num_heads = 4
  c.data.min_bytes = 4096  # long enough that a window of 8 x 64 lies in one document
  c.optim.learning_rate = 3e-3
  c.eval_every_steps = 300
  c.checkpoint_every_steps = 300
  return c
