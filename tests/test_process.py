"""Process settings: set where the user has not, never in the way."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pe_jax import config, encodings, model, process, resolve
from pe_jax.encodings.base import Where


def test_what_the_user_has_set_stays():
  environment = {'JAX_COMPILATION_CACHE_DIR': '', 'XDG_CACHE_HOME': '/somewhere'}
  process.prepare(environment)
  assert environment['JAX_COMPILATION_CACHE_DIR'] == ''
  environment = {'XDG_CACHE_HOME': '/somewhere'}
  process.prepare(environment)
  assert environment['JAX_COMPILATION_CACHE_DIR'] == '/somewhere/pe_jax/compiled'


def test_a_user_without_a_home_has_no_cache_and_no_error(monkeypatch):
  monkeypatch.setattr('os.path.expanduser', lambda path: path)  # what it gives where the system does not know the user
  environment = {}
  process.prepare(environment)
  assert 'JAX_COMPILATION_CACHE_DIR' not in environment


def test_make_sets_for_malloc_what_scripts_set():
  makefile = (pathlib.Path(__file__).parent.parent / 'Makefile').read_text()
  devices = ' '.join(process.DEVICES)
  assert f'ifeq ($(wildcard {devices}),)\nexport GLIBC_TUNABLES ?= {process.MALLOC["GLIBC_TUNABLES"]}\nendif\n' in makefile


def test_a_child_gets_the_settings_of_malloc_unless_the_user_says_otherwise(monkeypatch):
  monkeypatch.delenv('GLIBC_TUNABLES', raising=False)
  monkeypatch.setattr('sys.platform', 'linux')
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  assert process.child_environment()['GLIBC_TUNABLES'] == process.MALLOC['GLIBC_TUNABLES']
  assert 'GLIBC_TUNABLES' in process.hint()
  monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=0')
  assert process.child_environment()['GLIBC_TUNABLES'] == 'glibc.malloc.hugetlb=0'
  assert process.hint() == ''


@pytest.mark.parametrize(
  ('wanted', 'device', 'there'),
  [('', False, False), ('', True, True), ('cpu', True, False), ('tpu,cpu', False, True), ('cpu,cuda', True, False)],
)
def test_where_an_accelerator_computes_malloc_is_left_as_it_is(wanted, device, there, tmp_path, monkeypatch):
  monkeypatch.delenv('GLIBC_TUNABLES', raising=False)
  monkeypatch.setattr('sys.platform', 'linux')
  monkeypatch.setenv('JAX_PLATFORMS', wanted)
  monkeypatch.setattr(process, 'DEVICES', (str(tmp_path / 'nvidia[0-9]*'),))
  (tmp_path / ('nvidia0' if device else 'nvidiactl')).touch()
  assert process.accelerated() == there
  assert ('GLIBC_TUNABLES' in process.child_environment()) != there


def test_options_are_left_out_where_asked_for_long_texts_and_where_xla_rejects_them(monkeypatch):
  assert process.options(long=True) == {}
  monkeypatch.setattr(process, 'CPU_OPTIONS', {'xla_cpu_no_such_option': True})
  assert process.options() == {}
  monkeypatch.undo()
  monkeypatch.setenv('PE_JAX_CPU_OPTIONS', 'off')
  assert process.options() == {}


def test_options_change_no_result_beyond_rounding(monkeypatch):
  monkeypatch.delenv('PE_JAX_CPU_OPTIONS', raising=False)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64)), jnp.float32)

  def f(x):
    return jax.nn.softmax(x @ x.T) @ x

  np.testing.assert_allclose(jax.jit(f, compiler_options=process.options())(x), jax.jit(f)(x), rtol=1e-5, atol=1e-5)


def test_gradients_of_attention_with_wide_queries_survive_the_options(monkeypatch):
  """At these sizes XLA's fusion of products with what stands around them ended the process."""
  monkeypatch.delenv('PE_JAX_CPU_OPTIONS', raising=False)
  c = config.default()
  c.encoding, c.train_length, c.batch_size = 'pope', 512, 8
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = 1, 256, 4
  c = resolve.resolve(c)
  enc = encodings.make('pope', model.dims(c))
  params = model.init(c, enc, jax.random.PRNGKey(0))
  pos = jnp.broadcast_to(jnp.arange(512, dtype=jnp.int32)[None], (8, 512))

  def total(params):
    x, _ = model.hidden(c, enc, params, pos % 256, Where.forward(pos, jnp.ones_like(pos)))
    return jnp.mean(x * jnp.sin(jnp.arange(256.0))[None, None])

  got = jax.jit(jax.grad(total), compiler_options=process.options())(params)
  want = jax.jit(jax.grad(total))(params)
  largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(want))
  assert max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)) < 1e-4 * largest
