"""Binary numbers as lists of bits, of any size, for the three arithmetic tasks."""


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
