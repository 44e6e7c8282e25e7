// Tables that sort and filter, curves by uPlot, themes, a page that loads itself again while a sweep runs. What is shown is kept behind the
// # of the address, so that a reload or a link shows the same. Names reach the page as text, never as markup.
(() => {
  'use strict';
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  const FIRST = 10;  // lines that are drawn at first
  const protocols = [...$('filter-protocol').options].map((option) => option.value);
  // With several protocols the headline's is shown at first; null is what a chart or its readers' rank says.
  const usual = {
    length: '', protocol: protocols.length > 2 ? protocols[1] : '', name: '', chart: '', logX: null, logY: false, bands: true, sort: '', theme: '',
    shown: null,
  };
  const state = {...usual};
  let plot = null;

  // ---- what is shown, in the address

  function save() {
    const kept = new URLSearchParams();
    for (const [key, value] of Object.entries(state)) {
      if (value !== usual[key]) kept.set(key, key === 'shown' ? [...value].join('.') : String(value));
    }
    const text = kept.toString();
    try {
      history.replaceState(null, '', text ? `#~${text}` : '#');
    } catch {
      // a browser that keeps addresses of files as they are
    }
  }

  function restore() {
    if (!location.hash.startsWith('#~')) return;
    for (const [key, value] of new URLSearchParams(location.hash.slice(2))) {
      if (key === 'shown') state.shown = new Set(value.split('.').filter((x) => x !== '').map(Number).filter((n) => data.lines[n]));
      else if (key === 'logX' || key === 'logY' || key === 'bands') state[key] = value === 'true';
      else if (Object.hasOwn(state, key)) state[key] = value;
    }
  }

  // ---- tables

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => {
        const up = head.getAttribute('aria-sort') !== 'ascending';
        sort(table, column, up);
        if (table.id === 'ranking') {
          state.sort = `${column}${up ? '' : 'd'}`;
          save();
        }
      });
    });
  }

  function sort(table, column, up) {
    const value = (row) => {
      const cell = row.cells[column];
      const text = cell.dataset.v === undefined ? cell.textContent.trim() : cell.dataset.v;
      if (text === '' || text === '–') return null;
      return Number.isNaN(Number(text)) ? text : Number(text);
    };
    const order = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null);  // what is missing comes last, whichever way
      const less = typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), undefined, {numeric: true});
      return up ? less : -less;
    };
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [value(row), row]).sort((a, b) => order(a[0], b[0]));
    body.append(...rows.map(([, row]) => row));
    [...table.tHead.rows[0].cells].forEach((head, n) => {
      if (n === column) head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      else head.removeAttribute('aria-sort');
    });
  }

  function filterRanking() {
    let shown = 0;
    const rows = [...$('ranking').tBodies[0].rows];
    const name = state.name.toLowerCase();
    for (const row of rows) {
      const {l, p, f} = row.dataset;
      row.hidden = Boolean((state.length && l !== state.length) || (state.protocol && p !== state.protocol) || (name && !f.includes(name)));
      shown += !row.hidden;
    }
    $('ranking-count').textContent = `${shown} of ${rows.length} lines`;
  }

  function finder(table) {
    const rows = [...table.tBodies[0].rows];
    if (table.id === 'ranking' || rows.length <= 15) return;
    const label = document.createElement('label');
    const input = document.createElement('input');
    const count = document.createElement('output');
    label.className = 'controls';
    input.type = 'search';
    input.placeholder = 'part of a row';
    label.append('find ', input, count);
    table.closest('.scroll').before(label);
    let texts = null;
    const find = () => {
      let shown = 0;
      texts ??= rows.map((row) => row.textContent.toLowerCase());
      rows.forEach((row, n) => {
        row.hidden = !texts[n].includes(input.value.toLowerCase());
        shown += !row.hidden;
      });
      count.textContent = `${shown} of ${rows.length} lines`;
    };
    input.addEventListener('input', find);
    count.textContent = `${rows.length} lines`;
  }

  // ---- curves

  const chart = () => data.charts.find((one) => one.name === state.chart);
  const dark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  };

  function tint(hex, alpha = 1) {
    let rgb = [1, 3, 5].map((n) => parseInt(hex.slice(n, n + 2), 16));
    const bright = (0.21 * rgb[0] + 0.72 * rgb[1] + 0.07 * rgb[2]) / 255;
    if (dark() && bright < 0.45) rgb = rgb.map((x) => Math.round(x + (255 - x) * 0.4));  // legible on a dark page
    return `rgba(${rgb.join(',')},${alpha})`;
  }

  function show(x) {
    return x === null || x === undefined ? '–' : String(Number(x.toPrecision(4)));
  }

  const shown = () => state.shown ?? new Set(offered().slice(0, FIRST).map((c) => c.line));

  const offered = () => chart().curves.filter((c) => !state.length || String(data.lines[c.line].train) === state.length)
    .sort((a, b) => a.line - b.line);

  function nearest(xs, x) {
    let low = 0;
    let high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle;
      else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  }

  // Powers of two for lengths and positions; for losses 1, 2 and 5 times powers of ten, or even steps where the range is short.
  function powers(u, axis, low, high) {
    const from = Math.ceil(Math.log2(low) - 1e-9);
    const to = Math.floor(Math.log2(high) + 1e-9);
    const step = Math.max(1, Math.ceil((to - from + 1) / Math.max(2, Math.floor(u.width / 55))));
    const out = [];
    for (let n = from; n <= to; n += step) out.push(2 ** n);
    return out.length ? out : [low, high];
  }

  function decades(u, axis, low, high) {
    const out = [];
    if (high / low < 8) {
      const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10((high - low) / 4))).find((s) => (high - low) / s <= 7);
      for (let n = Math.ceil(low / step); n * step <= high; n++) out.push(Number((n * step).toPrecision(10)));
      return out;
    }
    for (let n = Math.floor(Math.log10(low)); n <= Math.ceil(Math.log10(high)); n++) {
      for (const m of [1, 2, 5]) {
        const at = Number((m * 10 ** n).toPrecision(3));
        if (at >= low && at <= high) out.push(at);
      }
    }
    return out;
  }

  const padded = (log) => (u, low, high) => {
    if (low === null || low === undefined || high === null) return log ? [1, 10] : [0, 1];
    if (log) return low === high ? [low / 2, high * 2] : [low / 1.06, high * 1.06];
    const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
    return [low - room, high + room];
  };

  function draw() {
    plot?.destroy();
    plot = null;
    $('tip')?.remove();
    const one = chart();
    const space = $('plot');
    const chosen = shown();
    const curves = offered().filter((c) => chosen.has(c.line));
    const logX = state.logX ?? one.log;
    let dropped = 0;
    $('log-x').checked = logX;
    const xs = [...new Set(curves.flatMap((c) => c.x))].filter((x) => !logX || x > 0).sort((a, b) => a - b);
    const at = new Map(xs.map((x, n) => [x, n]));
    const column = (c, values) => {
      const out = new Array(xs.length).fill(null);
      c.x.forEach((x, n) => {
        if (!at.has(x)) return;
        if (state.logY && values[n] <= 0) dropped += 1;
        else out[at.get(x)] = values[n];
      });
      return out;
    };
    const series = [{}];
    const columns = [xs];
    const bands = [];
    curves.forEach((c) => {
      const colour = data.lines[c.line].colour;
      if (c.low && state.bands) {
        bands.push({series: [series.length, series.length + 1], fill: tint(colour, 0.16)});
        for (const edge of [c.high, c.low]) {
          series.push({width: 0, points: {show: false}, spanGaps: true});
          columns.push(column(c, edge));
        }
      }
      const few = c.x.length < 14;
      series.push({label: data.lines[c.line].label, stroke: tint(colour), width: 1.75, spanGaps: true, points: {show: few, size: 5, fill: tint(colour)}});
      columns.push(column(c, c.y));
    });
    const some = columns.slice(1).some((values) => values.some((y) => y !== null));
    $('plot-note').textContent = [
      one.band, dropped ? `${dropped} values at or below 0 have no place on a logarithmic axis` : '',
      curves.length && !some ? 'nothing left to draw' : '', curves.length ? 'drag to look closer, double click to go back' : 'no line is chosen',
    ].filter(Boolean).join('; ');
    if (!some) {
      legend();
      return;
    }
    const look = getComputedStyle(document.documentElement);
    const ink = look.getPropertyValue('--soft').trim();
    const axis = {
      stroke: ink, grid: {stroke: look.getPropertyValue('--line').trim(), width: 1}, ticks: {stroke: look.getPropertyValue('--line').trim(), width: 1},
      font: '12px system-ui, sans-serif', labelFont: '12px system-ui, sans-serif', values: (u, splits) => splits.map(show),
    };
    const every = (u, splits) => splits;
    plot = new uPlot({
      ...size(), series, bands, legend: {show: false}, focus: {alpha: 1},
      scales: {x: {time: false, distr: logX ? 3 : 1, log: 2, range: padded(logX)}, y: {distr: state.logY ? 3 : 1, log: 10, range: padded(state.logY)}},
      axes: [
        {...axis, label: one.x, labelSize: 20, size: 34, ...(logX ? {splits: powers, filter: every} : {})},
        {...axis, label: one.y, labelSize: 20, size: 58, ...(state.logY ? {splits: decades, filter: every} : {})},
      ],
      cursor: {points: {size: 7}, dataIdx: (u, n, index) => (series[n].width === 0 ? null : closest(columns[n], index)), drag: {x: true, y: true, uni: 30}},
      hooks: {draw: [(u) => marks(u, one, curves, ink)], setCursor: [(u) => hover(u, curves)]},
    }, columns, space);
    legend();
  }

  // A line has no value at the x of another: the nearest of its own is meant.
  function closest(values, index) {
    if (index === null || values[index] !== null) return index;
    for (let far = 1; far < values.length; far++) {
      if (values[index - far] !== undefined && values[index - far] !== null) return index - far;
      if (values[index + far] !== undefined && values[index + far] !== null) return index + far;
    }
    return index;
  }

  function size() {
    const width = Math.max(260, $('plot-side').clientWidth);
    return {width, height: Math.round(Math.min(480, Math.max(280, width * 0.55)))};
  }

  function marks(u, one, curves, ink) {
    const {ctx, bbox} = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = ink;
    ctx.lineWidth = devicePixelRatio;
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textBaseline = 'top';
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    const across = (x) => {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    };
    for (const train of one.marks ? new Set(curves.map((c) => data.lines[c.line].train)) : []) {
      const x = u.valToPos(train, 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      across(x);
      ctx.textAlign = x - bbox.left < bbox.width / 5 ? 'left' : 'right';
      ctx.fillText(' trained to here ', x, bbox.top + 2);
    }
    const zero = state.logY ? NaN : u.valToPos(0, 'y', true);
    if (zero > bbox.top && zero < bbox.top + bbox.height) {
      ctx.beginPath();
      ctx.moveTo(bbox.left, zero);
      ctx.lineTo(bbox.left + bbox.width, zero);
      ctx.stroke();
    }
    ctx.restore();
  }

  function hover(u, curves) {
    const {left, top} = u.cursor;
    const inside = left !== null && left >= 0 && curves.length > 0;
    const x = inside ? u.posToVal(left, 'x') : null;
    let best = null;
    for (const c of curves) {
      const n = inside ? nearest(c.x, x) : null;
      const row = $('legend').querySelector(`[data-line="${c.line}"]`);
      if (!row) continue;
      row.querySelector('.value').textContent = n === null ? '' : show(c.y[n]);
      row.classList.remove('near');
      if (n === null || (state.logY && c.y[n] <= 0)) continue;
      const away = Math.hypot(u.valToPos(c.x[n], 'x') - left, u.valToPos(c.y[n], 'y') - top);
      if (!best || away < best.away) best = {away, c, n, row};
    }
    let tip = $('tip');
    if (!best) {
      tip?.remove();
      return;
    }
    if (!tip) {
      tip = document.createElement('div');
      tip.id = 'tip';
      $('plot').append(tip);
    }
    best.row.classList.add('near');
    const {c, n} = best;
    const range = c.low ? ` (${show(c.low[n])} .. ${show(c.high[n])})` : '';
    tip.textContent = `${data.lines[c.line].label}: ${show(c.y[n])}${range} at ${show(c.x[n])}`;
    const right = left > u.over.clientWidth / 2;
    tip.style.left = right ? '' : `${u.over.offsetLeft + left + 14}px`;
    tip.style.right = right ? `${$('plot').clientWidth - u.over.offsetLeft - left + 14}px` : '';
    tip.style.top = `${Math.max(0, u.over.offsetTop + top - 34)}px`;
  }

  function legend() {
    const box = $('legend');
    const chosen = shown();
    const place = box.scrollTop;
    box.replaceChildren(...offered().map((c) => {
      const label = document.createElement('label');
      const tick = document.createElement('input');
      const swatch = document.createElement('i');
      const name = document.createElement('span');
      const value = document.createElement('span');
      label.dataset.line = c.line;
      tick.type = 'checkbox';
      tick.checked = chosen.has(c.line);
      swatch.className = 'swatch';
      swatch.style.background = tint(data.lines[c.line].colour);
      name.className = 'label';
      name.textContent = data.lines[c.line].label;
      value.className = 'value';
      tick.addEventListener('change', () => {
        state.shown = shown();
        if (tick.checked) state.shown.add(c.line);
        else state.shown.delete(c.line);
        changed();
        $('legend').querySelector(`[data-line="${c.line}"] input`)?.focus();
      });
      label.append(tick, swatch, name, value);
      return label;
    }));
    box.scrollTop = place;
  }

  function changed() {
    save();
    draw();
  }

  // ---- wiring

  function curvesSection() {
    if (!data.charts.length) return;
    $('curves').hidden = false;
    if (!chart()) state.chart = data.charts[0].name;
    $('chart').value = state.chart;
    $('log-y').checked = state.logY;
    $('bands').checked = state.bands;
    $('chart').addEventListener('change', () => { state.chart = $('chart').value; state.logX = null; changed(); });
    $('log-x').addEventListener('change', () => { state.logX = $('log-x').checked; changed(); });
    $('log-y').addEventListener('change', () => { state.logY = $('log-y').checked; changed(); });
    $('bands').addEventListener('change', () => { state.bands = $('bands').checked; changed(); });
    const choose = (id, of) => $(id).addEventListener('click', () => { state.shown = new Set(of().map((c) => c.line)); changed(); });
    $('only-first').addEventListener('click', () => { state.shown = null; changed(); });
    choose('all-lines', offered);
    choose('no-lines', () => []);
    draw();
    new ResizeObserver(() => {
      if (plot && plot.width !== size().width) plot.setSize(size());
    }).observe($('plot-side'));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  }

  function rankingSection() {
    $('ranking-controls').hidden = false;
    for (const [id, key] of [['filter-length', 'length'], ['filter-protocol', 'protocol'], ['filter-name', 'name']]) {
      $(id).value = state[key];
      if ($(id).value !== state[key]) state[key] = $(id).value = '';
      $(id).addEventListener('input', () => {
        state[key] = $(id).value;
        filterRanking();
        if (key === 'length' && data.charts.length) draw();
        save();
      });
    }
    filterRanking();
    if (/^\d+d?$/.test(state.sort) && $('ranking').tHead.rows[0].cells[parseInt(state.sort, 10)]) {
      sort($('ranking'), parseInt(state.sort, 10), !state.sort.endsWith('d'));
    }
  }

  function themes() {
    const names = ['', 'light', 'dark'];
    const button = $('theme');
    const apply = () => {
      if (!names.includes(state.theme)) state.theme = '';
      if (state.theme) document.documentElement.dataset.theme = state.theme;
      else delete document.documentElement.dataset.theme;
      button.textContent = `theme: ${state.theme || 'auto'}`;
    };
    button.hidden = false;
    button.addEventListener('click', () => {
      state.theme = names[(names.indexOf(state.theme) + 1) % names.length];
      apply();
      save();
      if (data.charts.length) draw();
    });
    apply();
  }

  // A link to a card opens it; the address stays what it was, for it holds what is shown.
  function links() {
    const open = (id) => {
      const target = $(id);
      for (let part = target; part; part = part.parentElement) if (part.tagName === 'DETAILS') part.open = true;
      target?.scrollIntoView();
      return target;
    };
    document.addEventListener('click', (event) => {
      const link = event.target.closest?.('a[href^="#"]');
      if (link && open(link.getAttribute('href').slice(1))) event.preventDefault();
    });
    if (/^#[\w-]+$/.test(location.hash)) open(location.hash.slice(1));
  }

  function refreshing() {
    if (!data.refresh) return;
    const old = Date.now() / 1000 - data.made > Math.max(600, 20 * data.refresh);
    $('refreshing').textContent = old ? 'No longer written; this page does not load itself again.' : `Loads itself again every ${data.refresh} s.`;
    if (!old) setTimeout(() => location.reload(), data.refresh * 1000);
  }

  restore();
  themes();
  for (const table of document.querySelectorAll('table.sortable')) {
    sortable(table);
    finder(table);
  }
  rankingSection();
  curvesSection();
  links();
  refreshing();
  document.documentElement.dataset.ready = 'yes';
})();
