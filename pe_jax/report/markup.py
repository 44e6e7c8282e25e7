"""HTML from text, with everything escaped: names of runs, configurations and logs are other people's words."""

import html
import math
import unicodedata


def clean(text):
  """Text without what a page should not be given: control characters, halves of characters, marks that turn the reading direction."""
  text = str(text)
  if text.isprintable():
    return text
  return ''.join(c if c in '\n\t' or unicodedata.category(c) not in ('Cc', 'Cf', 'Cs') else '\ufffd' for c in text)


def esc(text):
  """Text for an element or a quoted attribute."""
  return html.escape(clean(text), quote=True)


def number(x, form='.3f'):
  """A number as it is shown, '–' where there is none."""
  return '–' if x is None or not math.isfinite(x) else format(x, form)


def cell(shown, value=None, kind=''):
  """A table's cell: escaped text, what it is sorted by, a class."""
  return raw(esc(shown), value, kind)


def raw(markup, value=None, kind=''):
  """A cell of markup that is already escaped; it is sorted by its text where no value is given, and '–' comes last."""
  return f'<td{attribute("data-v", "" if value is None else value)}{attribute("class", kind)}>{markup}</td>'


def quantity(x, form='.3f', more=''):
  """A cell with a number, sorted by it; `more` is markup shown small behind it."""
  return raw(number(x, form) + (f' <small>{more}</small>' if more else ''), x, 'n')


def table(name, head, rows, caption=''):
  """A table that scrolls by itself.

  Args:
    name: its id.
    head: (title, explanation) of each column; explanations may be ''.
    rows: lists of cells, or (attributes, cells).
    caption: text.
  """
  first = (rows[0][1] if isinstance(rows[0], tuple) else rows[0]) if rows else [''] * len(head)
  kinds = ['n' if ' class="n"' in cell.partition('>')[0] else '' for cell in first]
  columns = ''.join(
    f'<th scope="col"{attribute("class", kind)}{attribute("title", why)}>{esc(title)}</th>' for (title, why), kind in zip(head, kinds)
  )
  body = []
  for row in rows:
    attributes, cells = row if isinstance(row, tuple) else ('', row)
    body.append(f'<tr{" " if attributes else ""}{attributes}>{"".join(cells)}</tr>')
  said = f'<p><small>{esc(caption)}</small></p>' if caption else ''
  inside = f'<thead><tr>{columns}</tr></thead><tbody>\n' + '\n'.join(body) + '\n</tbody>'
  return f'{said}<div class="scroll" tabindex="0"><table{attribute("id", name)} class="sortable">{inside}</table></div>'


def attribute(name, value):
  """' name="value"', or nothing for an empty value."""
  return f' {name}="{esc(value)}"' if value != '' else ''


def folded(title, content, unfolded=False, name='', kind=''):
  """Content that can be folded away; title is text, content markup."""
  start = f'<details{attribute("id", name)}{attribute("class", kind)}{" open" if unfolded else ""}>'
  return f'{start}<summary>{esc(title)}</summary>{content}</details>'


def pre(text):
  """Text as it is laid out."""
  return f'<pre tabindex="0">{esc(text)}</pre>'
