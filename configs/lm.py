"""Six layers, 512 positions, bytes: one GPU or one TPU host, on C4 or PG-19 prepared by TFDS.

  python train.py --config=configs/lm.py:alibi,data_dir=gs://bucket/tensorflow_datasets --workdir=runs/alibi
  python train.py --config=configs/lm.py:rope,dataset=pg19,data_dir=/data/tensorflow_datasets --workdir=runs/rope
  python train.py --config=configs/lm.py:rope,runlocal --workdir=runs/local

`runlocal` shrinks it to a laptop without an accelerator and to the Python sources that are always there; the README has its time and loss.
"""

from pe_jax.config import default, parse_arg
from pe_jax.data import prepared


def get_config(arg=''):
  """`:<encoding>,train_length=512,dataset=c4/en,data_dir=…,seed=0,runlocal`."""
  arg = parse_arg(arg, encoding='rope', train_length=512, dataset='c4/en', data_dir='', seed=0, runlocal=False)
  c = default()
  c.encoding = arg.encoding
  c.train_length = arg.train_length
  c.seed = arg.seed
  if arg.runlocal:
    c.data.data_dir = arg.data_dir
    return runlocal(c)
  c.batch_size = 256  # 131072 bytes a step
  c.num_train_steps = 20_000
  c.model.num_layers = 6
  c.model.embed_dim = 512
  c.model.num_heads = 8
  c.model.mlp = 'swiglu'
  c.model.dtype = 'bfloat16'
  c.data.update(prepared.fields(arg.dataset, arg.data_dir))
  c.optim.learning_rate = 1e-3
  c.optim.warmup_steps = 1000
  c.eval_every_steps = 1000
  c.checkpoint_every_steps = 1000
  return c


def runlocal(c):
  """The same road in minutes on two cores."""
  c.batch_size = 8
  c.num_train_steps = 300
  c.model.num_layers = 2
  c.model.embed_dim = 128
  c.model.num_heads = 4
  c.model.mlp = 'swiglu'
  c.optim.learning_rate = 2e-3
  c.optim.warmup_steps = 30
  c.eval_every_steps = 100
  c.checkpoint_every_steps = 100
  c.eval_targets = 32_768
  return c
