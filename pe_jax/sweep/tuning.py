"""Learning rates tuned for each arm of a comparison, on the validation loss at the training length alone and with equal budgets.

    def sweep(done):
      yield from tuning.tuned(ARMS, rates=[1e-3, 3e-3, 1e-2], seeds=[1, 2, 3], done=done)

Stage one trains every arm at every rate with the same seed and steps, and is not evaluated: nothing beyond the training length can have a
say. As soon as all rates of an arm are in `done`, its seeds are trained at the rate whose loss is smallest, the smaller one of two that
tie. A rate whose loss was not finite has lost, and an arm that has no other is not trained further. The seed of stage one is none of stage
two's, so that no run is reported for its luck.
"""

import math

from pe_jax.errors import ConfigError

RATE = 'optim.learning_rate'


def tuned(arms, rates, seeds, done, trial=None, trial_seed=1000):
  """Yields a sweep's runs.

  Args:
    arms: {name: {field: value}}.
    rates: learning rates, the same for every arm.
    seeds: of the runs at the chosen rate.
    done: {name: validation loss} as sweep() is given it.
    trial: more fields of stage one, such as fewer steps; the same for every arm.
    trial_seed: of stage one.
  """
  if trial_seed in seeds:
    raise ConfigError(f'trial_seed: {trial_seed} is one of the seeds {list(seeds)} (the runs that rates are chosen by are not reported)')
  for arm, fields in arms.items():
    for rate in sorted(rates):
      yield trial_name(arm, rate), fields | {'seed': trial_seed, RATE: rate} | (trial or {}), ()
  for arm, fields in arms.items():
    rate = best(arm, rates, done)
    for seed in seeds if rate else ():
      yield f'{arm}-s{seed}', fields | {'seed': seed, RATE: rate}


def trial_name(arm, rate):
  """'alibi-lr0.003'"""
  return f'{arm}-lr{rate:g}'


def best(arm, rates, done):
  """The rate with the smallest validation loss; None until all of them are known, and where none was finite."""
  losses = {rate: done.get(trial_name(arm, rate)) for rate in sorted(rates)}
  if None in losses.values() or not any(map(math.isfinite, losses.values())):
    return None
  return min(losses, key=losses.get)


def notes(arms, rates, done):
  """Sentences on rates that were chosen at the end of their range, where a better one may lie beyond."""
  found = []
  for arm in arms:
    rate = best(arm, rates, done)
    if rate in (min(rates), max(rates)) and len(rates) > 1:
      end = 'smallest' if rate == min(rates) else 'largest'
      found.append(f'{arm}: its learning rate, {rate:g}, is the {end} that was tried; a better one may lie beyond')
  return found
