"""The lengths that are all called "supported", side by side for one run: trained, configured, framework, request, batch, reliable.

They are answers to six questions, and the first five say nothing of the last.
"""

POSITIONS = 2**31 - 1  # int32 ids; phases are exact up to them (encodings/phases.py)


def lines(run, lengths):
  """Lines of text.

  Args:
    run: a `results.Run` with a configuration.
    lengths: pairs for its readings beyond the training length: whether it is read as it was trained, `statistics.lengths.Lengths`.
  """
  config, train = run.config, run.config.get('train_length')
  computed = max((row['length'] for row in run.rows if isinstance(row.get('length'), int)), default=None)
  own = next((x for is_own, x in lengths if is_own), None)
  device = f', {run.env["device_count"]} x {run.env["device_kind"]}' if {'device_count', 'device_kind'} <= run.env.keys() else ''
  found = [
    ('trained', f'{train}', 'tokens of a row'),
    ('configured', own.acceptable.text(train) if own else 'not measured', 'positions that the encoding has'),
    ('framework', f'{own.acceptable.passed if own and own.acceptable.passed else POSITIONS}', 'more is refused'),
    (
      'one request',
      own.computable.text(train) if own else f'>= {computed}' if computed else 'not measured',
      'one row, computed or compiled',
    ),
    ('a batch', f'>= {train}' if run.step else 'not measured', f'in each of {config.get("batch_size")} rows, computed in training{device}'),
  ]
  found += [('reliable', '', x.text()) for _, x in lengths] or [
    ('reliable', 'not measured', '(context rows beyond the training length are needed)')
  ]
  first, second = (max(len(row[n]) for row in found) for n in (0, 1))
  return [f'{name:{first}}  {value:{second}}  {said}' if value else f'{name:{first}}  {said}' for name, value, said in found]
