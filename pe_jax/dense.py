"""Activations x weights, with gradients in the form that a CPU is fast at. The numbers are those of any product.

    y = x W,   dx = dy W^T,   dW = x^T dy

XLA's CPU products want the axis they sum over last on the left and first on the right. The transpose of W is small and is really made,
where XLA would fold it into the product and lose up to half of its speed; for dW the narrower of x and dy is transposed.
"""

import jax
from jax import lax


def dot_general_on(platform):
  """What nn.Dense multiplies with in a program for `platform`; '' and 'interpret': this process's devices."""
  here = platform in ('', 'interpret')
  return dot_general if (jax.default_backend() if here else platform) == 'cpu' else lax.dot_general


def dot_general(x, w, dimension_numbers, precision=None, preferred_element_type=None):
  """`lax.dot_general` of x (..., D) and W (D, F) for a CPU."""
  if dimension_numbers == (((x.ndim - 1,), (0,)), ((), ())) and preferred_element_type is None:
    return product(x, w)
  return lax.dot_general(x, w, dimension_numbers, precision, preferred_element_type)


@jax.custom_vjp
def product(x, w):
  """x W, (..., F)."""
  return x @ w


def _forward(x, w):
  return x @ w, (x, w)


def _backward(kept, d_y):
  x, w = kept
  rows = tuple(range(x.ndim - 1))
  wide = x.shape[-1] > d_y.shape[-1]
  left, right = (d_y, x) if wide else (x, d_y)
  d_w = lax.dot_general(left, right, ((rows, rows), ((), ())))
  return d_y @ lax.optimization_barrier(w.T), lax.optimization_barrier(d_w).T if wide else d_w


product.defvjp(_forward, _backward)
