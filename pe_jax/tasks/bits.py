"""Binary numbers as lists of bits, of any size, and the task of two numbers with a sign between them."""

from pe_jax.tasks.base import Task, answered

SIGN, ANSWER, STOP = 2, 3, 4


def positive(rng, length):
  """A uniform number in 1 .. 2^length - 1."""
  while True:
    bits = rng.integers(2, size=length)
    if bits.any():
      return number(bits)


def number(bits):
  """The number of bits with the least weight first."""
  return int(''.join(str(int(b)) for b in bits[::-1]) or '0', 2)


def bits(number, length=0):
  """The bits, least weight first, at least `length` of them; of 0 and length 0 one bit."""
  return [int(b) for b in f'{number:b}'.zfill(length)[::-1]]


def pair(rng, length):
  """(a, bits of a, b, bits of b): two positive numbers whose bits are `length` - 1 together, cut at a uniform place."""
  first = int(rng.integers(1, length - 1))
  a, b = positive(rng, first), positive(rng, length - 1 - first)
  return a, bits(a, first), b, bits(b, length - 1 - first)


def of_two(sign, compute):
  """The Task of `compute`, (a, b) -> number, for two positive numbers; chance of a token 1/3."""

  def sample(rng, length):
    a, first, b, second = pair(rng, length)
    return answered([*first, SIGN, *second, ANSWER], [*bits(compute(a, b)), STOP])

  return Task(
    words=('0', '1', sign, '>', '.'),
    sample=sample,
    size=lambda length: 2 * length + 1,
    alphabet=(0, 1, STOP),
    shortest=3,
    stop=STOP,
  )
