"""Process settings: set where the user has not, never in the way."""

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import process


def test_what_the_user_has_set_stays():
  environment = {'JAX_COMPILATION_CACHE_DIR': '', 'XDG_CACHE_HOME': '/somewhere'}
  process.prepare(environment)
  assert environment['JAX_COMPILATION_CACHE_DIR'] == ''
  environment = {'XDG_CACHE_HOME': '/somewhere'}
  process.prepare(environment)
  assert environment['JAX_COMPILATION_CACHE_DIR'] == '/somewhere/pe_jax/compiled'


def test_a_child_gets_huge_pages_unless_the_user_says_otherwise(monkeypatch):
  monkeypatch.delenv('GLIBC_TUNABLES', raising=False)
  monkeypatch.setattr('sys.platform', 'linux')
  assert process.child_environment()['GLIBC_TUNABLES'] == 'glibc.malloc.hugetlb=1'
  assert 'GLIBC_TUNABLES' in process.hint()
  monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=0')
  assert process.child_environment()['GLIBC_TUNABLES'] == 'glibc.malloc.hugetlb=0'
  assert process.hint() == ''


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
