#include "ulpscope/analyzers/report/html_parts.h"

namespace ulpscope {

// What moves. It reads what it needs from the document, and writes texts as texts: no part of it makes markup. Without it all
// numbers are there; it makes the controls itself, so that none stands there that does nothing.
std::string_view html_script() {
  return R"(
(() => {
  'use strict';
  const root = document.documentElement;
  root.classList.add('js');
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, attributes = {}, text = '') => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };

  // ---- theme
  const button = document.getElementById('theme');
  const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const nameTheme = () => { button.textContent = isDark() ? 'Light' : 'Dark'; };
  button.addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; nameTheme(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', nameTheme);
  nameTheme();

  // ---- paper: everything is opened, and light
  let before = null;
  addEventListener('beforeprint', () => {
    before = { theme: root.dataset.theme, closed: all('details:not([open])') };
    delete root.dataset.theme;
    for (const details of before.closed) details.open = true;
  });
  addEventListener('afterprint', () => {
    if (!before) return;
    if (before.theme) root.dataset.theme = before.theme;
    for (const details of before.closed) details.open = false;
  });

  // ---- what stands under the pointer
  const tip = make('div', { class: 'tip', role: 'status' });
  document.body.append(tip);
  const hideTip = () => tip.classList.remove('on');
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.classList.add('on');
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + 'px';
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + 'px';
  };
  // Moves with the pointer, or with the arrow keys where the picture has the focus. `describe` takes shares of width and height.
  const explore = (picture, columns, describe, leave = () => {}) => {
    let at = 0.5, down = 0.5;
    picture.setAttribute('tabindex', '0');
    for (const title of all('title', picture)) if (title.parentNode === picture) title.remove();
    const show = (across, below) => {
      const box = picture.getBoundingClientRect();
      at = Math.min(1 - 1e-9, Math.max(0, across));
      down = Math.min(1 - 1e-9, Math.max(0, below));
      const text = describe(at, down);
      if (text) showTip(text, box.left + at * box.width, box.top + down * box.height); else hideTip();
    };
    picture.addEventListener('pointermove', (event) => {
      const box = picture.getBoundingClientRect();
      show((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    });
    const away = () => { hideTip(); leave(); };
    picture.addEventListener('pointerleave', away);
    picture.addEventListener('blur', away);
    picture.addEventListener('keydown', (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (event.key === 'Escape') away();
      if (!(event.key in moves)) return;
      const [x, y] = moves[event.key], rows = Number(picture.dataset.rows || 1);
      show((Math.floor(at * columns) + 0.5 + x) / columns, (Math.floor(down * rows) + 0.5 + y) / rows);
      event.preventDefault();
    });
  };

  // ---- lines over steps
  for (const area of all('.chart > .area:not(.grid-cells)')) {
    const first = Number(area.dataset.first), end = Number(area.dataset.end);
    const series = all('path[data-x]', area).reverse().map((path) => ({
      path, name: path.dataset.name, x: path.dataset.x.split('|').map(Number), texts: path.dataset.t.split('|') }));
    const places = [...new Set(series.flatMap((one) => one.x))].length;
    const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    for (const [name, value] of [['class', 'cursor hidden'], ['y1', '0'], ['y2', '100%']]) cursor.setAttribute(name, value);
    area.append(cursor);
    const marks = all('.mark, .band', area).map((mark) => ({ title: mark.textContent, from: parseFloat(mark.getAttribute('x1') ||
      mark.getAttribute('x')), width: parseFloat(mark.getAttribute('width') || '0') }));
    explore(area, Math.max(1, Math.min(places, 2000)), (across) => {
      const x = first + across * (end - first);
      const lines = [area.dataset.x + ' ' + Math.floor(x)];
      for (const one of series) {
        if (one.path.classList.contains('hidden')) continue;
        let low = 0, high = one.x.length;
        while (low < high) { const middle = (low + high) >> 1; if (one.x[middle] <= x) low = middle + 1; else high = middle; }
        if (low > 0) lines.push(one.name + ': ' + one.texts[low - 1]);
      }
      const near = marks.filter((mark) => 100 * across >= mark.from - 0.6 && 100 * across <= mark.from + mark.width + 0.6);
      for (const mark of near.slice(0, 4)) lines.push(mark.title);
      cursor.setAttribute('x1', 100 * across + '%');
      cursor.setAttribute('x2', 100 * across + '%');
      cursor.classList.remove('hidden');
      return lines.join('\n');
    }, () => cursor.classList.add('hidden'));
    const legend = area.closest('.card').querySelector('.legend');
    if (legend) all('li', legend).forEach((item, i) => {
      const toggle = make('button', { type: 'button', 'aria-pressed': 'true' }, item.textContent);
      item.lastChild.replaceWith(toggle);
      toggle.addEventListener('click', () => {
        const hidden = series[i].path.classList.toggle('hidden');
        toggle.setAttribute('aria-pressed', String(!hidden));
      });
    });
  }

  // ---- bars of exponents
  for (const named of all('.named:not(.heat)')) {
    const lowest = Number(named.dataset.first);
    for (const bars of all('.bars', named)) {
      const counts = bars.dataset.v.split(' ');
      explore(bars, counts.length, (across) => {
        const i = Math.floor(across * counts.length);
        return bars.getAttribute('aria-label') + '\n2^' + (lowest + i) + ': ' + counts[i] + ' ' + named.dataset.y;
      });
    }
  }

  // ---- cells of heatmaps: each distinct text once, cells as runs of their places
  const decode = (runs) => runs.split(' ').flatMap((run) => {
    const [place, count] = run.split('*');
    return Array(Number(count || 1)).fill(Number(place));
  });
  const columnName = (data, i) => {
    const from = Number(data.from) + i * Number(data.width), last = from + Number(data.width) - 1;
    return data.x + ' ' + from + (last > from ? ' to ' + last : '');
  };
  for (const named of all('.named.heat')) {
    const data = named.dataset, texts = data.texts.split('|'), columns = Number(data.n);
    for (const cells of all('.cells', named)) {
      const name = cells.closest('.line').querySelector('.name').textContent;
      let row = null;
      explore(cells, columns, (across) => {
        row = row || decode(cells.dataset.v);
        const i = Math.floor(across * columns);
        return name + '\n' + columnName(data, i) + ': ' + (texts[row[i]] ? data.y + ' ' + texts[row[i]] : 'nothing recorded');
      });
    }
  }
  for (const area of all('.grid-cells')) {
    const data = area.dataset, texts = data.texts.split('|'), columns = Number(data.n), coded = data.v.split(';'), rows = [];
    data.rows = coded.length;
    explore(area, columns, (across, down) => {
      const i = Math.floor(across * columns), j = Math.floor(down * coded.length);
      rows[j] = rows[j] || decode(coded[j]);
      const exponent = Number(data.top) - j * Number(data.joined), text = texts[rows[j][i]];
      return columnName(data, i) + '\n2^' + exponent + (Number(data.joined) > 1 ? ' to 2^' + (exponent + Number(data.joined) - 1) : '') +
        ': ' + (text ? text + ' ' + data.y : 'nothing');
    });
  }

  // ---- lines with names: one is enlarged, some are looked for
  for (const named of all('.named')) {
    const lines = all('.lines .line', named);
    for (const line of lines) {
      const name = line.querySelector('.name');
      const enlarge = make('button', { type: 'button', 'aria-expanded': 'false' }, name.textContent);
      name.textContent = '';
      name.append(enlarge);
      enlarge.addEventListener('click', () => enlarge.setAttribute('aria-expanded', String(line.classList.toggle('large'))));
    }
    if (lines.length < 6) continue;
    const search = make('input', { type: 'search', placeholder: 'name contains ...', 'aria-label': 'Show lines whose name contains' });
    const shown = make('span', { role: 'status' }), tools = make('div', { class: 'tools' });
    const more = named.querySelector('.more');
    search.addEventListener('input', () => {
      const wanted = search.value.toLowerCase();
      let count = 0;
      for (const line of lines) {
        const has = line.querySelector('.name').textContent.toLowerCase().includes(wanted);
        line.classList.toggle('hidden', !has);
        count += has;
      }
      if (more && wanted) more.open = true;
      shown.textContent = wanted ? count + ' of ' + lines.length : '';
    });
    tools.append(search, shown, make('span', {}, 'A click on a name enlarges its line.'));
    named.before(tools);
  }

  // ---- tables
  const valueOf = (cell) => {
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const text = cell.textContent;
    return text === '' || isNaN(text) ? NaN : Number(text);
  };
  for (const card of all('.card.table')) {
    const table = card.querySelector('table');
    if (!table) continue;
    const body = table.tBodies[0], rows = [...body.rows], headers = [...table.tHead.rows[0].cells];
    const name = card.querySelector('h3').textContent;

    headers.forEach((header, column) => {
      const sort = make('button', { type: 'button', class: 'sort', title: 'sort by this column' });
      sort.append(...header.childNodes);
      header.append(sort);
      const isNumber = header.classList.contains('n');
      const text = (row) => row.cells[column].textContent;
      const last = (a, b) => isNaN(a) - isNaN(b);  // what is not known stands below, in either order
      sort.addEventListener('click', () => {
        const way = header.getAttribute('aria-sort') === (isNumber ? 'descending' : 'ascending') ? (isNumber ? 1 : -1) : (isNumber ? -1 : 1);
        for (const other of headers) other.removeAttribute('aria-sort');
        header.setAttribute('aria-sort', way > 0 ? 'ascending' : 'descending');
        const values = new Map(rows.map((row) => [row, valueOf(row.cells[column])]));
        const order = (a, b) => {
          const x = values.get(a), y = values.get(b);
          if (!isNumber) return way * text(a).localeCompare(text(b), 'en', { numeric: true });
          return last(x, y) || (isNaN(x) || x === y ? 0 : way * (x < y ? -1 : 1));
        };
        body.append(...[...rows].sort(order));
      });
    });

    const tests = new Map(), shown = make('span', { role: 'status' }), tools = make('div', { class: 'tools' });
    const apply = () => {
      let count = 0;
      for (const row of rows) {
        const passes = [...tests.values()].every((test) => test(row));
        row.classList.toggle('hidden', !passes);
        count += passes;
      }
      shown.textContent = count < rows.length ? count + ' of ' + rows.length + ' rows' : rows.length + ' rows';
    };

    if (card.dataset.scaleColumn !== undefined) {
      const column = Number(card.dataset.scaleColumn), texts = new Map();
      for (const row of rows) texts.set(valueOf(row.cells[column]), row.cells[column].textContent);
      const scales = [...texts.keys()].filter((scale) => !isNaN(scale)).sort((a, b) => a - b);
      const label = make('label', {}, 'Loss scale'), output = make('output');
      const slider = make('input', { type: 'range', min: '0', max: String(scales.length - 1), step: '1' });
      slider.value = String(Math.floor(scales.length / 2));
      const every = make('button', { type: 'button', 'aria-pressed': 'false' }, 'all scales');
      const choose = () => {
        const scale = scales[Number(slider.value)];
        output.textContent = texts.get(scale);
        slider.setAttribute('aria-valuetext', texts.get(scale));
        every.setAttribute('aria-pressed', 'false');
        tests.set('scale', (row) => valueOf(row.cells[column]) === scale);
        apply();
      };
      slider.addEventListener('input', choose);
      every.addEventListener('click', () => {
        tests.delete('scale');
        output.textContent = 'all';
        every.setAttribute('aria-pressed', 'true');
        apply();
      });
      label.append(slider, output);
      tools.append(label, every);
      choose();
      const names = [...new Set(rows.map((row) => row.cells[0].textContent))];
      if (names.length > 1) {
        const of = make('label', {}, headers[0].textContent.trim()), select = make('select', { class: 'one' });
        select.append(make('option', { value: '' }, 'all'));
        names.forEach((value) => select.append(make('option', { value }, value)));
        select.addEventListener('change', () => {
          if (select.selectedIndex === 0) tests.delete('one');
          else tests.set('one', (row) => row.cells[0].textContent === select.value);
          apply();
        });
        of.append(select);
        tools.append(of);
      }
    }
    if (rows.length > 8) {
      headers.forEach((header, column) => {
        if (header.classList.contains('n') || column === 0) return;
        const values = [...new Set(rows.map((row) => row.cells[column].textContent))];
        if (values.length < 2 || values.length > 8) return;
        const label = make('label', {}, header.textContent.trim()), select = make('select');
        select.append(make('option', { value: '' }, 'all'));
        values.sort().forEach((value) => select.append(make('option', { value }, value)));
        select.addEventListener('change', () => {
          if (select.selectedIndex === 0) tests.delete(column);
          else tests.set(column, (row) => row.cells[column].textContent === select.value);
          apply();
        });
        label.append(select);
        tools.append(label);
      });
      const search = make('input', { type: 'search', placeholder: 'row contains ...', 'aria-label': 'Show rows of ' + name + ' that contain' });
      search.addEventListener('input', () => {
        const wanted = search.value.toLowerCase();
        tests.set('search', (row) => row.textContent.toLowerCase().includes(wanted));
        apply();
      });
      tools.append(search, shown);
      apply();
    }
    if (tools.childNodes.length > 0) card.querySelector('.scroll').before(tools);

    // Exact numbers of what is rounded.
    body.addEventListener('pointermove', (event) => {
      const cell = event.target.closest('td[data-v]');
      if (cell) showTip(cell.dataset.v, event.clientX, event.clientY); else hideTip();
    });
    body.addEventListener('pointerleave', hideTip);
  }
})();
)";
}

}  // namespace ulpscope
