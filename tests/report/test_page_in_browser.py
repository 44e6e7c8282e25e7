"""The page in a real Chromium: it loads without an error or a request, sorts, filters, toggles, answers to the mouse, fits the screen."""

import pages
import pytest
import written_runs as written

pytestmark = [
  pytest.mark.xdist_group('browser'),  # one browser, and two pages that take seconds to make
  pytest.mark.skipif(not pages.chromium(), reason=pages.ABSENT),
]
DESKTOP, PHONE = {'width': 1280, 'height': 900}, {'width': 390, 'height': 844}
FLAGS = (
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
  '--disable-sync',
)  # fmt: skip


@pytest.fixture(scope='module')
def browser():
  from playwright.sync_api import sync_playwright

  with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=pages.chromium(), args=list(FLAGS))
    yield browser
    browser.close()


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """Three encodings, two seeds; one encoding at another training length; a probe; a run that failed."""
  folder = tmp_path_factory.mktemp('small')
  written.sweep(folder / 'runs', ['rope', 'alibi', 'nope'], rise=0.2)
  longer = written.context('fire', {128: 1.4, 181: 1.45, 256: 1.6}, 128)
  longer += [written.row('nonoverlapping', 'fire', n, x, 128) for n, x in ((128, 1.5), (256, 1.7))]
  written.run(folder / 'runs' / 'longer', written.config('fire', 128), longer)
  written.run(folder / 'runs' / 'probed', written.config('t5'), [written.needle('t5', n, 0.5) for n in (64, 128)])
  written.run(folder / 'runs' / 'failed', written.config('kerple'), steps=300, done=False, log='ERROR: loss: is nan\n')
  return pages.make(folder / 'runs', folder / 'out')


@pytest.fixture(scope='module')
def large(tmp_path_factory):
  """200 runs, each a configuration of its own."""
  folder = tmp_path_factory.mktemp('large')
  written.sweep(folder / 'runs', [f'rope(base={1000 + n})' for n in range(200)], seeds=(0,), rise=0.002)
  return pages.make(folder / 'runs', folder / 'out')


@pytest.fixture
def show(browser):
  """(path, viewport, colour scheme, what comes after #) -> a loaded page, on which nothing has gone wrong when the test ends."""
  opened, wrong = [], []

  def show(path, viewport=DESKTOP, scheme='light', hash='', **more):
    context = browser.new_context(viewport=viewport, color_scheme=scheme, **more)
    page = context.new_page()
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('console', lambda said: wrong.append(said.text) if said.type in ('error', 'warning') else None)
    page.on('request', lambda request: wrong.append(request.url) if not request.url.startswith((path.as_uri(), 'data:')) else None)
    opened.append(context)
    page.goto(path.as_uri() + hash)
    if more.get('java_script_enabled', True):
      page.wait_for_selector('html[data-ready=yes]', state='attached')
    return page

  yield show
  for context in opened:
    context.close()
  assert wrong == []


def column(page, table, n):
  """Texts of the rows that are seen."""
  return page.locator(f'#{table} tbody tr:visible td:nth-child({n})').all_inner_texts()


def names(page):
  return [text.strip() for text in column(page, 'ranking', 1)]


def drawn(page):
  """How many lines and bands the chart has: series without the x axis', and those of them that are edges."""
  return page.evaluate("document.querySelectorAll('#legend input:checked').length")


def test_the_ranking_sorts_by_any_column_and_missing_values_come_last(show, small):
  page = show(small)
  assert names(page) == ['rope, L=64', 'alibi, L=64', 'nope, L=64', 'fire, L=128']  # context is chosen at first
  page.click('#ranking th:nth-child(8) button')
  assert names(page) == ['rope, L=64', 'fire, L=128', 'alibi, L=64', 'nope, L=64']
  page.click('#ranking th:nth-child(8) button')
  assert names(page) == ['nope, L=64', 'alibi, L=64', 'fire, L=128', 'rope, L=64']
  assert page.get_attribute('#ranking th:nth-child(8)', 'aria-sort') == 'descending'
  page.click('#ranking th:nth-child(1) button')
  assert names(page) == ['alibi, L=64', 'fire, L=128', 'nope, L=64', 'rope, L=64']
  page.click('#runs th:nth-child(8) button')
  assert column(page, 'runs', 8)[-1] == '–'
  page.click('#runs th:nth-child(8) button')
  assert column(page, 'runs', 8)[-1] == '–'


def test_the_ranking_filters_by_training_length_protocol_and_name(show, small):
  page = show(small)
  page.select_option('#filter-length', '128')
  assert names(page) == ['fire, L=128']
  page.select_option('#filter-protocol', '')
  assert column(page, 'ranking', 4) == ['context', 'nonoverlapping']
  page.select_option('#filter-length', '')
  page.select_option('#filter-protocol', 'nonoverlapping')
  page.fill('#filter-name', 'ALI')
  assert names(page) == ['alibi, L=64']
  assert page.inner_text('#ranking-count') == '1 of 11 lines'


def test_encodings_are_toggled(show, small):
  page = show(small)
  labels = [text.strip() for text in page.locator('#legend .label').all_inner_texts()]
  assert labels == ['rope, L=64', 'fire, L=128', 'alibi, L=64', 'nope, L=64']
  before = page.locator('#plot canvas').screenshot()
  page.click('#legend label:has-text("nope")')
  assert drawn(page) == 3
  assert page.locator('#plot canvas').screenshot() != before
  page.click('#legend label:has-text("nope")')
  assert page.locator('#plot canvas').screenshot() == before
  page.click('#no-lines')
  assert drawn(page) == 0
  assert page.locator('#plot canvas').count() == 0
  assert 'no line is chosen' in page.inner_text('#plot-note')
  page.click('#all-lines')
  assert drawn(page) == 4
  page.select_option('#filter-length', '64')
  assert [text.strip() for text in page.locator('#legend .label').all_inner_texts()] == ['rope, L=64', 'alibi, L=64', 'nope, L=64']


def test_values_are_shown_under_the_mouse(show, small):
  page = show(small)
  page.click('#no-lines')
  page.click('#legend label:has-text("alibi")')
  page.evaluate("document.querySelector('#plot').scrollIntoView({block: 'center'})")
  box = page.locator('#plot .u-over').bounding_box()
  page.mouse.move(box['x'] + box['width'] * 0.985, box['y'] + box['height'] * 0.1)
  page.wait_for_selector('#tip')
  assert page.inner_text('#tip') == 'alibi, L=64: 0.6 at 256'
  assert page.inner_text('#legend label:has-text("alibi") .value') == '0.6'
  page.mouse.move(box['x'] + 3, box['y'] + box['height'] * 0.9)
  page.wait_for_selector('#tip:has-text(" at 64")')
  page.mouse.move(5, 5)
  page.wait_for_selector('#tip', state='detached')


def test_every_chart_is_drawn_on_both_kinds_of_axes(show, small):
  page = show(small)
  for value in page.locator('#chart option').evaluate_all('all => all.map((o) => o.value)'):
    page.select_option('#chart', value)
    for box in ('#log-x', '#log-y', '#log-x', '#bands'):
      before = page.is_checked(box)
      page.click(box)
      assert page.is_checked(box) != before
      assert page.locator('#plot canvas').count() == 1 or 'nothing left to draw' in page.inner_text('#plot-note'), (value, box)
    page.click('#log-y')


def test_a_logarithmic_axis_says_what_has_no_place_on_it(show, small):
  page = show(small)
  page.click('#log-y')
  assert 'values at or below 0 have no place on a logarithmic axis' in page.inner_text('#plot-note')


def test_a_link_shows_what_was_chosen(show, small):
  page = show(small)
  page.select_option('#filter-length', '64')
  page.select_option('#chart', 'length_nonoverlapping')
  page.click('#legend label:has-text("nope")')
  page.click('#log-x')
  page.click('#theme')
  page.click('#ranking th:nth-child(1) button')
  kept = page.evaluate('location.hash')
  again = show(small, hash=kept)
  assert again.input_value('#filter-length') == '64'
  assert again.input_value('#chart') == 'length_nonoverlapping'
  assert (drawn(again), again.is_checked('#log-x')) == (2, False)
  assert again.get_attribute('html', 'data-theme') == 'light'
  assert names(again) == ['alibi, L=64', 'nope, L=64', 'rope, L=64']


def test_a_link_in_the_ranking_opens_the_card(show, small):
  page = show(small)
  page.click('#ranking a:has-text("alibi")')
  card = page.locator('details.card[open]')
  assert card.count() == 1
  assert 'encoding = "alibi"' in card.inner_text()


@pytest.mark.parametrize('viewport', [DESKTOP, PHONE], ids=['desktop', 'phone'])
@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_the_page_fits_the_screen_in_both_colour_schemes(show, small, viewport, scheme):
  page = show(small, viewport, scheme)
  page.wait_for_timeout(200)
  assert page.evaluate('document.documentElement.scrollWidth') <= viewport['width']
  paper = page.evaluate('getComputedStyle(document.body).backgroundColor')
  assert (paper == 'rgb(255, 255, 255)') == (scheme == 'light')
  wider = page.evaluate('[...document.querySelectorAll(".scroll, #plot, figure img, pre")].map((e) => e.getBoundingClientRect().right)')
  assert max(wider) <= viewport['width']
  page.set_viewport_size({'width': 700, 'height': 700})
  page.wait_for_timeout(200)
  assert page.evaluate("document.querySelector('#plot .uplot').getBoundingClientRect().right") <= 700


def test_without_javascript_the_tables_and_pictures_are_there(show, small):
  page = show(small, java_script_enabled=False)
  assert page.locator('#ranking tbody tr:visible').count() == 11
  assert page.locator('noscript p').is_visible()
  assert not page.locator('#curves').is_visible()
  assert page.locator('figure img').evaluate_all('all => all.length') > 5
  page.click('summary:has-text("loss against length (nonoverlapping)")')
  assert page.locator('#table_length_nonoverlapping').is_visible()


def test_200_runs_are_there_in_two_seconds_and_long_tables_stay_usable(show, large):
  page = show(large)
  session = page.context.new_cdp_session(page)
  session.send('Performance.enable')
  spent = {metric['name']: metric['value'] for metric in session.send('Performance.getMetrics')['metrics']}
  # The processor's time of the whole page, scripts and layout and drawing: other work on this machine does not lengthen it.
  assert spent['ProcessTime'] < 2
  assert page.locator('#plot canvas').count() == 1
  assert large.stat().st_size < 3e6
  assert drawn(page) == 10
  assert page.evaluate("document.querySelector('#ranking').closest('.scroll').clientHeight") <= 900
  page.fill('#filter-name', 'base=1007')
  assert names(page) == ['rope(base=1007)']
  page.locator('section#runs-section label:has-text("find") input').fill('150_0')
  assert column(page, 'runs', 1) == ['150_0']
  page.locator('#ranking').evaluate("table => table.closest('.scroll').scrollTop = 4000")
  assert page.locator('#ranking th').first.is_visible()
  page.click('#all-lines')
  assert drawn(page) == 200
