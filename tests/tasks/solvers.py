"""Second definitions of the tasks, from the words of a prompt to the words of its answer: slow, plain, and knowing nothing of pe_jax/tasks.

`GOLDEN` are samples written by hand; SOLVERS[name](prompt, fields) answers a prompt, LENGTH[name](prompt, answer) says its length.
"""

import collections
import re

GOLDEN = {
  'needle': ('3 3 f 0 12 ?', 'f'),
  'copy': ('a c a b >', 'a c a b .'),
  'reverse': ('a c a b >', 'b a c a .'),
  'sort': ('7 2 31 >', '2 7 31 .'),
  'selective_copy': ('_ a _ _ c a _ >', 'a c a .'),
  'counting': ('a _ a pass _ a a a a a a a a a a a > a', '1 1 .'),
  'count': ('4 7 >', '4 5 6 7 .'),
  'mode': ('a b b c b a >', 'b'),
  'addition': ('2 4 + 9 1 =', '1 6 0 .'),
  'indirect': ('c a d b > d -1', 'a'),
  'niah': ('f0 f1 k2 v9 f3 f3 f0 k7 v4 f1 ? k7 >', 'v4 .'),
  'variable_tracking': ('f1 x3 = v5 f0 x6 = v2 x1 = x3 x7 = x6 x8 = x1 f4 ? v5 >', 'x3 x1 x8 .'),
  'common_words': ('d a c a b a c c a c >', 'a c .'),
  'frequent_words': ('c a c b c a >', 'c a b .'),
  'brackets': ('( [ ] [ ( >', ') ] ) .'),
  'records': ('{ k4 = v1 , k9 = v0 , k2 = v7 } ? k2 k4 >', '{ k2 = v7 , k4 = v1 } .'),
  'even_pairs': ('0 1 0 1 0 0 1 >', '1'),
  'parity_check': ('0 1 1 1 1 >', '0'),
  'cycle_navigation': ('+ - 0 - - >', '3'),
  'modular_arithmetic_simple': ('0 * 1 + 4 * 3 - 3 >', '4'),
  'modular_arithmetic': ('( ( 2 ) * - 3 ) >', '4'),
  'solve_equation': ('( x - 2 ) = 1 >', '3'),
  'reverse_string': ('0 1 1 1 >', '1 1 1 0'),
  'duplicate_string': ('1 0 1 >', '1 0 1 1 0 1'),
  'missing_duplicate_string': ('1 0 1 1 2 1 3 >', '0'),
  'odds_first': ('0 0 1 1 0 1 0 1 >', '0 1 0 0 0 1 1 1'),
  'bucket_sort': ('1 0 2 0 4 1 >', '0 0 1 1 2 4'),
  'stack_manipulation': ('0 1 1 0 push1 pop pop >', '1 1 0 .'),
  'binary_addition': ('1 0 0 1 + 0 0 0 0 0 1 >', '1 0 0 1 0 1 .'),
  'binary_multiplication': ('0 0 1 * 0 1 1 0 1 >', '0 0 0 1 1 0 1 .'),
  'compute_sqrt': ('1 0 0 1 0 1 >', '1 1 0'),
}
MORE_GOLDEN = [  # (name, fields, prompt, answer)
  ('addition', {'hints': 9}, 'b 2 c 4 + b 9 c 1 =', 'b 1 c 6 d 0 .'),
  ('addition', {'hints': 9, 'reversed': False}, 'c 4 b 2 + c 1 b 9 =', 'd 0 c 6 b 1 .'),
  ('addition', {'reversed': False, 'padded': False}, '9 9 + 7 =', '1 0 6 .'),
  ('niah', {}, 'k1 v3 f0 k2 v5 k1 v4 ? k2 k1 >', 'v5 v3 v4 .'),
  ('counting', {}, 'a b b a > b', '2 .'),
  ('counting', {}, 'a pass pass > a', '0 .'),
  ('stack_manipulation', {}, '1 pop pop push0 pop >', '.'),
  ('modular_arithmetic', {}, '( - 3 ) >', '2'),
  ('solve_equation', {}, '( ( 1 + 4 ) - - x ) = 3 >', '3'),
  ('binary_addition', {}, '0 0 1 + 0 1 1 0 1 >', '0 1 0 1 1 .'),
]


def before(prompt, mark='>'):
  return prompt[: prompt.index(mark)]


def ended(words):
  return [*words, '.']


def addition(prompt, fields):
  a, b = ' '.join(prompt[:-1]).split(' + ')
  digits = [re.findall(r'\b\d\b', side) for side in (a, b)]
  order = -1 if fields['reversed'] else 1
  values = [int(''.join(d[::order])) for d in digits]
  total = str(sum(values))
  if fields['padded']:
    total = total.zfill(max(map(len, digits)) + 1)
  if not fields['hints']:
    return ended(total[::order])
  least = min(w for w in prompt if w.isalpha())  # hints in use are single letters in the tests
  hinted = [(chr(ord(least) + weight), digit) for weight, digit in enumerate(total[::-1])]
  return ended(word for pair in (hinted if fields['reversed'] else hinted[::-1]) for word in pair)


def counting(prompt, fields):
  del fields
  count = 0
  for word in before(prompt):
    count = 0 if word == 'pass' else count + (word == prompt[-1])
  return ended(str(count))


def indirect(prompt, fields):
  del fields
  text, (source, shift) = before(prompt), prompt[-2:]
  assert text.count(source) == 1
  place = text.index(source) + int(shift)
  assert place >= 0
  return [text[place]]


def niah(prompt, fields):
  del fields
  text = before(prompt, '?')
  asked = prompt[len(text) + 1 : -1]
  return ended(text[i + 1] for key in asked for i, word in enumerate(text) if word == key)


def variable_tracking(prompt, fields):
  del fields
  text, asked = before(prompt, '?'), prompt[-2]
  value = {}
  for i, word in enumerate(text):
    if word == '=':
      value[text[i - 1]] = value.get(text[i + 1], text[i + 1])
  return ended(name for name in value if value[name] == asked)


def common_words(prompt, fields):
  counts = collections.Counter(before(prompt)).most_common()
  named = [word for word, n in counts[: fields['common']]]
  assert len({n for _, n in counts[: fields['common']]}) == 1
  assert len(counts) == fields['common'] or counts[fields['common']][1] < counts[0][1]
  return ended(sorted(named, key=prompt.index))


def frequent_words(prompt, fields):
  return ended(word for word, _ in collections.Counter(before(prompt)).most_common(fields['top']))


def brackets(prompt, fields):
  del fields
  text = ''.join(before(prompt))
  while (shorter := text.replace('()', '').replace('[]', '').replace('{}', '')) != text:
    text = shorter
  return ended({'(': ')', '[': ']', '{': '}'}[b] for b in reversed(text))


def records(prompt, fields):
  del fields
  text = ''.join(prompt)
  held = dict(re.findall(r'(k\d+)=(v\d+)', text))
  asked = re.findall(r'k\d+', text[text.index('?') :])
  answer = ','.join(f'{k}={held[k]}' for k in asked)
  return ended(re.findall(r'\w+|\W', '{' + answer + '}'))


def simple(prompt, fields):
  terms = ' '.join(before(prompt)).replace('- ', '+ -').split('+')
  total = 0
  for term in terms:
    product = 1
    for factor in term.split('*'):
      product *= int(factor)
    total += product
  return [str(total % fields['modulus'])]


def value(words):
  """Of an expression by recursive descent: - e, ( e ), ( e operator e ), digit."""
  rest = list(words)

  def read():
    word = rest.pop(0)
    if word == '-':
      return -read()
    if word != '(':
      return int(word)
    total = read()
    if rest[0] != ')':
      operator, other = rest.pop(0), read()
      total = total + other if operator == '+' else total - other if operator == '-' else total * other
    assert rest.pop(0) == ')'
    return total

  total = read()
  assert not rest
  return total


def solve_equation(prompt, fields):
  left, right = before(prompt)[:-2], before(prompt)[-1]
  found = [d for d in range(fields['modulus']) if value([str(d) if w == 'x' else w for w in left]) % fields['modulus'] == int(right)]
  assert len(found) == 1
  return [str(found[0])]


def missing(prompt, fields):
  del fields
  text = ''.join(before(prompt)).rstrip('3')
  half = len(text) // 2
  gap = text.index('2')
  return [text[(gap + half) % len(text)]]


def stack(prompt, fields):
  del fields
  held = ''
  for word in before(prompt):
    held = held[:-1] if word == 'pop' else held + word[-1]
  return ended(held[::-1])


def binary(operation):
  def solve(prompt, fields):
    del fields
    a, b = re.split(r'[+*]', ''.join(before(prompt)))
    return ended(bin(operation(int(a[::-1], 2), int(b[::-1], 2)))[2:][::-1])

  return solve


def root(prompt, fields):
  del fields
  number, bits = int(''.join(before(prompt)), 2), before(prompt)
  low, high = 0, number + 1
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if middle * middle <= number else (low, middle)
  return list(bin(low)[2:].zfill((len(bits) + 1) // 2))


SOLVERS = {
  'needle': lambda p, f: [w for w in p if w.isalpha()],
  'copy': lambda p, f: ended(before(p)),
  'reverse': lambda p, f: ended(reversed(before(p))),
  'sort': lambda p, f: ended(sorted(before(p), key=int)),
  'selective_copy': lambda p, f: ended(w for w in before(p) if w != '_'),
  'counting': counting,
  'count': lambda p, f: ended(map(str, range(int(p[0]), int(p[1]) + 1))),
  'mode': lambda p, f: [max(set(before(p)), key=p.count)],
  'addition': addition,
  'indirect': indirect,
  'niah': niah,
  'variable_tracking': variable_tracking,
  'common_words': common_words,
  'frequent_words': frequent_words,
  'brackets': brackets,
  'records': records,
  'even_pairs': lambda p, f: [str(sum(a != b for a, b in zip(before(p), before(p)[1:])) % 2)],
  'parity_check': lambda p, f: [str(p.count('1') % 2)],
  'cycle_navigation': lambda p, f: [str((p.count('+') - p.count('-')) % 5)],
  'modular_arithmetic_simple': simple,
  'modular_arithmetic': lambda p, f: [str(value(before(p)) % f['modulus'])],
  'solve_equation': solve_equation,
  'reverse_string': lambda p, f: list(reversed(before(p))),
  'duplicate_string': lambda p, f: 2 * before(p),
  'missing_duplicate_string': missing,
  'odds_first': lambda p, f: [w for i, w in enumerate(before(p)) if i % 2 == 0] + [w for i, w in enumerate(before(p)) if i % 2],
  'bucket_sort': lambda p, f: sorted(before(p), key=int),
  'stack_manipulation': stack,
  'binary_addition': binary(lambda a, b: a + b),
  'binary_multiplication': binary(lambda a, b: a * b),
  'compute_sqrt': root,
}

LENGTH = {name: lambda p, a: len(before(p)) for name in SOLVERS} | {
  'needle': lambda p, a: len(p) - 1,
  'count': lambda p, a: len(a) - 1,
  'addition': lambda p, a: max(len(re.findall(r'\b\d\b', side)) for side in ' '.join(p).split('+')),
  'niah': lambda p, a: p.index('?'),
  'variable_tracking': lambda p, a: p.index('?'),
  'records': lambda p, a: p.count('='),
}
