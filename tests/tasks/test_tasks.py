"""Tasks: every sample answered again by a second definition, and what all samples have in common."""

import json
import math

import numpy as np
import pytest
import solvers

from pe_jax import tasks
from pe_jax.errors import ConfigError

VARIANTS = {
  'copy': ['copy(draw="distinct")', 'copy(draw="constant", symbols=3)'],
  'reverse': ['reverse(draw="distinct")', 'reverse(draw="constant")'],
  'counting': ['counting(variables=3, passes=.3)', 'counting(passes=0)'],
  'selective_copy': ['selective_copy(blanks=0)', 'selective_copy(blanks=1)'],
  'addition': [
    'addition(reversed=False)',
    'addition(padded=False)',
    'addition(hints=26)',
    'addition(hints=26, reversed=False, padded=False)',
  ],
  'niah': ['niah(needles=4)', 'niah(values=4)', 'niah(needles=4, queries=3, values=2)'],
  'variable_tracking': ['variable_tracking(chains=3, hops=1)'],
  'common_words': ['common_words(symbols=10, common=1, ratio=5)'],
  'frequent_words': ['frequent_words(symbols=5, top=2, exponent=1)'],
  'brackets': ['brackets(kinds=1)'],
  'records': ['records(asked=1, keys=40)'],
  'modular_arithmetic': ['modular_arithmetic(modulus=7)'],
  'modular_arithmetic_simple': ['modular_arithmetic_simple(modulus=3)'],
}
ALL = [spec for name in tasks.names() for spec in (name, *VARIANTS.get(name, []))]
ANSWERED = [spec for spec in ALL if spec.partition('(')[0] in solvers.SOLVERS]


def fields(spec):
  spec = tasks.parse(spec)
  return tasks.fields(spec.name) | dict(spec.fields)


def some_lengths(task):
  """The shortest two, some on the way, a long one."""
  there = task.lengths(1, 160)
  return sorted({there[0], there[min(1, len(there) - 1)], there[len(there) // 5], there[len(there) // 2], there[-1]})


def generator(*key):
  return np.random.default_rng(key)


def text(task, tokens):
  return [task.words[i] for i in tokens]


def test_every_task_has_a_second_definition_and_a_sample_by_hand():
  assert {*solvers.SOLVERS, 'markov', 'flip_flop', 'recall'} == set(tasks.names())
  assert set(solvers.GOLDEN) == set(solvers.SOLVERS)
  assert len(tasks.names()) == 34


@pytest.mark.parametrize(
  ('name', 'given', 'prompt', 'answer'), [*((n, {}, p, a) for n, (p, a) in solvers.GOLDEN.items()), *solvers.MORE_GOLDEN]
)
def test_the_second_definition_gives_what_was_written_by_hand(name, given, prompt, answer):
  """And the words are the task's."""
  assert solvers.SOLVERS[name](prompt.split(), tasks.fields(name) | given) == answer.split()
  spec = tasks.grammar.Spec(name, tuple(given.items()))
  words = tasks.make(str(spec)).words
  if name != 'counting' or 'b' not in prompt:
    assert set(f'{prompt} {answer}'.split()) <= set(words)


@pytest.mark.parametrize('spec', ANSWERED)
def test_every_sample_has_the_answer_of_the_second_definition_and_its_length(spec):
  task, given, longest = tasks.make(spec), fields(spec), 0
  name = tasks.parse(spec).name
  for length in some_lengths(task):
    for seed in range(30 if length < 60 else 6):
      tokens, answer = task.sample(generator(seed, length), length)
      assert (np.diff(answer.astype(int)) >= 0).all(), 'the answer comes last'
      prompt, said = text(task, tokens[~answer]), text(task, tokens[answer])
      assert said == solvers.SOLVERS[name](prompt, given), prompt
      assert solvers.LENGTH[name](prompt, said) == length
      longest = max(longest, len(tokens) / task.size(length))
  assert longest <= 1


@pytest.mark.parametrize('spec', ALL)
def test_a_sample_is_a_pure_function_of_its_seed_with_ids_of_the_vocabulary(spec):
  task = tasks.make(spec)
  assert len(set(task.words)) == len(task.words)
  assert task.vocab_size == task.bos + 1 == len(task.words) + 1
  different = 0
  for length in some_lengths(task):
    for seed in range(8):
      (tokens, answer), (again, _), (other, _) = (task.sample(generator(s, length), length) for s in (seed, seed, seed + 100))
      assert (tokens.dtype, answer.dtype) == (np.int32, bool)
      assert tokens.shape == answer.shape
      assert (tokens == again).all()
      assert tokens.min() >= 0
      assert tokens.max() < task.bos
      assert set(tokens[answer]) <= set(task.alphabet)
      assert answer.any()
      assert len(tokens) + 1 <= task.positions(length)
      if task.stop is not None:
        assert (tokens[answer] == task.stop).nonzero()[0].tolist() == [answer.sum() - 1]
      if task.judge:
        assert task.judge(tokens[~answer].tolist(), tokens[answer].tolist()) == (True, True)
      different += len(tokens) != len(other) or bool((tokens != other).any())
  assert different > 8


@pytest.mark.parametrize('spec', ALL)
def test_a_guesser_has_the_chance_that_is_stated(spec):
  task = tasks.make(spec)
  length = some_lengths(task)[1]
  rng = generator(0)
  hits, exact, sizes = [], [], []
  for seed in range(400):
    tokens, answer = task.sample(generator(seed), length)
    right = rng.choice(np.asarray(task.alphabet), answer.sum()) == tokens[answer]
    hits += right.tolist()
    exact.append(right.all())
    sizes.append(answer.sum())
  token, whole = task.chance(sizes)
  assert token == 1 / len(task.alphabet)
  for found, chance in ((hits, token), (exact, whole)):
    assert abs(np.mean(found) - chance) < 4 * math.sqrt(max(chance * (1 - chance), 1e-9) / len(found)) + 3 / len(found)


def test_a_row_of_the_worst_case_is_reached():
  """What a row reserves is needed by some sample, so that no row is wider than it must be (but for products and sums of binary numbers)."""
  for spec in ALL:
    task = tasks.make(spec)
    length = task.lengths(1, 6 if task.shortest < 6 else 160)[-1] if task.shortest < 6 else task.shortest
    found = max(len(task.sample(generator(seed), length)[0]) for seed in range(600))
    assert found == task.size(length) or spec.startswith(('binary', 'stack')), spec


def test_flip_flop_reads_what_was_written_last():
  task = tasks.make('flip_flop(ignore=.5)')
  for length in (2, 3, 40):
    for seed in range(20):
      tokens, answer = task.sample(generator(seed), length)
      words, memory, targets = text(task, tokens), None, []
      assert len(words) == 2 * length
      for n, (instruction, bit) in enumerate(zip(words[::2], words[1::2])):
        assert instruction in 'wir'
        assert bit in '01'
        if instruction == 'w':
          memory = bit
        if instruction == 'r':
          assert bit == memory
          targets.append(2 * n + 1)
      assert (words[0], words[-2]) == ('w', 'r')
      assert answer.nonzero()[0].tolist() == targets
  many = np.concatenate([task.sample(generator(seed), 100)[0][2:-2:2] for seed in range(50)])
  np.testing.assert_allclose(np.bincount(many) / len(many), [0.25, 0.5, 0.25], atol=0.03)


@pytest.mark.parametrize('spec', ['recall', 'recall(gap=2, queries=3, keys=9)', 'recall(episodes=3, queries=2)'])
def test_recall_asks_for_values_that_were_told(spec):
  task, given = tasks.make(spec), fields(spec)
  for length in (3, 7, 9):
    for seed in range(10):
      tokens, answer = task.sample(generator(seed), length)
      assert len(tokens) == task.size(length)
      episode, targets = len(tokens) // given['episodes'], []
      for n in range(given['episodes']):
        words = text(task, tokens[n * episode : (n + 1) * episode])
        pairs, asked = words[: words.index('>')], words[words.index('>') + 1 :]
        held = {pairs[i]: pairs[i + 1] for i in range(0, len(pairs), 2 + given['gap'])}
        assert len(held) == length
        assert all(w[0] == 'f' for i, w in enumerate(pairs) if i % (2 + given['gap']) > 1)
        assert len(set(asked[::2])) == given['queries']
        assert [held[k] for k in asked[::2]] == asked[1::2]
        targets += [n * episode + len(pairs) + 2 + 2 * q for q in range(given['queries'])]
      assert answer.nonzero()[0].tolist() == targets


def test_the_optimum_of_a_markov_chain_is_the_count_of_transitions_and_no_other_count_is_better():
  task, total, others = tasks.make('markov(symbols=4)'), 0.0, np.zeros(3)
  pseudo = np.asarray([0.5, 1.0, 2.0])
  for seed in range(150):
    tokens, answer = task.sample(generator(seed), 50)
    seen, nats = [], [math.log(4)]
    assert answer.tolist() == [False] + [True] * 49
    for t in range(1, 50):
      a, b = tokens[t - 1 : t + 1]
      n_a = sum(x == a for x, _ in seen)
      n_ab = seen.count((a, b))
      nats.append(-math.log((n_ab + 1) / (n_a + 4)))
      others -= np.log((n_ab + pseudo) / (n_a + 4 * pseudo))
      seen.append((a, b))
    np.testing.assert_allclose(task.floor(tokens), nats, atol=1e-12)
    total += sum(nats[1:])
  assert others[1] == pytest.approx(total)
  assert others[1] < min(others[0], others[2])
  assert total / 150 / 49 < math.log(4) - 0.1


def test_a_verdict_on_answers_that_are_not_right():
  def verdicts(spec, prompt, answers):
    task = tasks.make(spec)
    ids = {word: i for i, word in enumerate(task.words)}
    return [task.judge([ids[w] for w in prompt.split()], [ids[w] for w in answer.split()]) for answer in answers]

  answers = [') ] ) .', ') ] )', ') ) ] .', '] ) .', ') ] } ) .', '( ) ) ] ) .', '. .', ') ] > ) .', '.']
  want = [(1, 1), (0, 1), (0, 1), (0, 1), (0, 0), (1, 1), (0, 1), (0, 1), (0, 1)]
  assert verdicts('brackets', '( [ ] [ ( >', answers) == want
  answers = [
    '{ k2 = v7 } .',
    '{ k2 = v7 , k4 = v0 } .',
    '{ k9 = v0 } .',
    '{ k2 = v3 } .',
    '{ k2 = v7',
    '{ } .',
    '{ k2 v7 = } .',
    'v1 .',
    '.',
  ]
  want = [(1, 1), (1, 1), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)]
  assert verdicts('records', '{ k4 = v1 , k9 = v0 , k2 = v7 } ? k2 k4 >', answers) == want
  answers = ['v4 .', 'v9 .', 'v5 .', 'v4', 'v4 v9 .', 'k7 .', '.']
  want = [(1, 1), (1, 1), (1, 0), (0, 1), (0, 1), (0, 1), (0, 1)]
  assert verdicts('niah', 'f0 k2 v9 f3 k7 v4 ? k7 >', answers) == want
  assert verdicts('variable_tracking(hops=1)', 'x3 = v5 x1 = x3 ? v5 >', ['x1 x3 .', 'x1 x2 .', 'x1 .']) == [(1, 1), (1, 0), (0, 1)]
  assert verdicts('common_words', 'a a c a c >', ['a c .', 'a b .', 'a > .']) == [(1, 1), (1, 0), (0, 1)]


@pytest.mark.parametrize(
  ('spec', 'match'),
  [
    ('copi', r"'copi' is unknown \(did you mean 'copy'\?\)"),
    ('', "source 'task' needs one"),
    ('copy(symbol=3)', r"copy has no field 'symbol' \(did you mean 'symbols'\?\) \(it has symbols, draw\)"),
    ('parity_check(n=3)', r"parity_check has no field 'n' \(it has none\)"),
    ('copy(symbols=0)', r'copy: symbols=0 must be in 1 .. 65536'),
    ('copy(symbols=1000000)', r'must be in 1 .. 65536'),
    ('copy(symbols="a")', 'wants int, as in symbols=26'),
    ('copy(draw="distnct")', r"draw='distnct' is unknown \(did you mean 'distinct'\?\)"),
    ('copy(sort)', 'copy takes fields alone'),
    ('copy, sort', 'names 2 tasks where one is wanted'),
    ('copy(', r'cannot be read \(write e.g. copy\(symbols=26\)\)'),
    ('flip_flop(ignore=2)', 'is a share and must be in 0 .. 1'),
    ('frequent_words(exponent=0)', 'must be above 0'),
    ('recall(gap=-1)', 'must be in 0 .. 65536'),
    ('recall(queries=65)', 'keys=64 must be at least 65, as many as queries=65'),
    ('niah(queries=2)', 'needles=1 must be at least 2'),
    ('niah(needles=9, values=9)', 'names left=-17 must be at least 0'),
    ('common_words(ratio=2)', 'ratio=2 must be at least 4'),
    ('modular_arithmetic(modulus=1)', 'modulus=1 must be at least 2'),
    ('markov(symbols=1)', 'symbols=1 must be at least 2'),
  ],
)
def test_a_task_that_does_not_exist_is_told_in_a_sentence(spec, match):
  with pytest.raises(ConfigError, match=match) as error:
    tasks.make(spec)
  assert str(error.value).startswith('data.name: ')
  assert '\n' not in str(error.value)


def test_words_that_are_hardly_ever_of_different_frequency_are_a_sentence_and_no_endless_search():
  task = tasks.make('frequent_words(top=6)')
  with pytest.raises(ConfigError, match=r'in none of 20000 texts of 21 words had the 6 most frequent different frequencies'):
    task.sample(np.random.default_rng(0), 21)
  assert task.sample(np.random.default_rng(0), 4000)


def test_one_task_has_one_text():
  assert str(tasks.parse('copy( draw="random",symbols=30 )')) == 'copy(symbols=30)'
  assert tasks.make('selective_copy(blanks=1)').spec == 'selective_copy(blanks=1)'
  assert json.loads(json.dumps(tasks.make('copy').spec)) == 'copy'


def test_lengths_that_a_task_does_not_have():
  simple = tasks.make('modular_arithmetic_simple')
  assert list(simple.lengths(2, 8)) == [3, 5, 7]
  for spec, length, match in [
    (
      'modular_arithmetic_simple',
      4,
      r'lengths: modular_arithmetic_simple has no samples of length 4 \(its lengths are 1 and more in steps of 2\)',
    ),
    ('copy(draw="distinct")', 27, r'its lengths are 1 to 26'),
    ('addition(hints=5)', 5, r'its lengths are 1 to 4'),
    ('solve_equation', 2, r'3 and more'),
  ]:
    with pytest.raises(ConfigError, match=match):
      tasks.make(spec).check_length(length)
