"""Records: some fields of a record, as a record.

    { k4 = v1 , k9 = v0 , k2 = v7 } ? k2 k4 > { k2 = v7 , k4 = v1 } .

`length` fields with different keys and uniform values; `asked` of the keys come after '?'. A generated answer keeps the format if it is a
record of one or more fields with '.' after it; it is unsupported if it names a key that was not asked for or a value that is not in the
prompt.
"""

from pe_jax.tasks.base import Task, answered, at_least, numbered

OPEN, CLOSE, EQUALS, COMMA, ASK, ANSWER, STOP, KEY = range(8)


def written(fields):
  """The tokens of a record."""
  inside = [token for key, value in fields for token in (key, EQUALS, value, COMMA)]
  return [OPEN, *inside[:-1], CLOSE]


def sample(rng, length, keys, values, asked):
  """(tokens, answer) of a record of `length` fields."""
  key, value = KEY + rng.permutation(keys)[:length], KEY + keys + rng.integers(values, size=length)
  wanted = rng.permutation(length)[:asked]
  prompt = [*written(zip(key, value)), ASK, *key[wanted], ANSWER]
  return answered(prompt, [*written(zip(key[wanted], value[wanted])), STOP])


def judge(prompt, answer, keys):
  """(a record and '.', only keys that were asked for and values of the prompt)"""
  prompt, answer = [int(i) for i in prompt], [int(i) for i in answer]
  fields = list(zip(answer[1::4], answer[3::4]))
  is_key = [KEY <= k < KEY + keys for k, _ in fields]
  is_value = [v >= KEY + keys for _, v in fields]
  well_formed = bool(fields) and all(is_key) and all(is_value) and answer == [*written(fields), STOP]
  asked, present = prompt[prompt.index(ASK) :], set(prompt)
  return well_formed, all(i in (asked if i < KEY + keys else present) for i in answer if i >= KEY)


def task(*, keys=64, values=64, asked=2):
  """`keys`, `values`: different ones; `asked`: fields of the answer."""
  at_least('records', 'keys', keys, asked, f'as many as asked={asked}')
  return Task(
    words=('{', '}', '=', ',', '?', '>', '.', *numbered(keys, 'k'), *numbered(values, 'v')),
    sample=lambda rng, length: sample(rng, length, keys, values, asked),
    size=lambda length: 4 * length + 5 * asked + 5,
    alphabet=(OPEN, CLOSE, EQUALS, COMMA, STOP, *range(KEY, KEY + keys + values)),
    shortest=asked,
    longest=keys,
    stop=STOP,
    judge=lambda prompt, answer: judge(prompt, answer, keys),
  )
