"""Random expressions with brackets, modulo a number, for modular_arithmetic.py and solve_equation.py.

With d a uniform digit, the expression of length 1 is d, of 2 -d, of 3 (d), of 4 (-d). A longer one is (left operator right): the length of
left is uniform over 1 .. length - 4, the operator is uniform. Delétang and others, 2022, arXiv:2207.02098.
"""


def expression(rng, length, modulus, operators):
  """(list of words, value) of an expression of `length` words."""
  if length < 5:
    digit = int(rng.integers(modulus))
    words = {1: '{}', 2: '-{}', 3: '({})', 4: '(-{})'}[length].format('d')
    return [str(digit) if w == 'd' else w for w in words], (-digit if '-' in words else digit) % modulus
  left = int(rng.integers(1, length - 3))
  a, x = expression(rng, left, modulus, operators)
  b, y = expression(rng, length - 3 - left, modulus, operators)
  operator = operators[rng.integers(len(operators))]
  value = {'+': x + y, '-': x - y, '*': x * y}[operator]
  return ['(', *a, operator, *b, ')'], value % modulus
