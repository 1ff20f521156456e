// Returns the layout errors of the visible page as sentences: horizontal scrolling,
// clipped text without scrolling or ellipsis, covered controls, and overlapping
// controls.
(() => {
  const wrong = [];
  const scripts = matchMedia("(scripting: enabled)").matches;
  const slack = 1.5; // of a pixel: what browsers round
  const style = new Map();
  const styleOf = e => {
    if (!style.has(e)) style.set(e, getComputedStyle(e));
    return style.get(e);
  };
  const name = e => {
    let s = e.tagName.toLowerCase();
    if (e.id) s += "#" + e.id;
    s += [...e.classList].map(c => "." + c).join("");
    const says = (e.ariaLabel || e.innerText || e.value || e.name || "").trim().replace(/\s+/g, " ").slice(0, 40);
    return says ? `${s} “${says}”` : s;
  };
  const visible = e => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  // Visually hidden, or hidden until focused.
  const forEars = e => {
    for (let a = e; a && a !== document.body; a = a.parentElement) {
      const s = styleOf(a);
      if (s.clipPath !== "none" || (s.position === "absolute" && s.overflow === "hidden" && a.offsetWidth <= 1)) return true;
      const r = a.getBoundingClientRect();
      if ((s.position === "absolute" || s.position === "fixed") && (r.bottom <= 0 || r.right <= 0) && a.matches("a, .skip")) return true;
    }
    return false;
  };

  scrollTo({ top: 0, left: 0, behavior: "instant" });
  const width = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth > width + slack) {
    wrong.push(`the page is ${document.scrollingElement.scrollWidth} px wide on a screen of ${width}`);
    for (const e of document.body.querySelectorAll("*")) {
      const r = e.getBoundingClientRect();
      if (visible(e) && r.right + scrollX > width + slack && ![...e.children].some(c => c.getBoundingClientRect().right > width + slack)) {
        let inside = false;
        for (let a = e.parentElement; a && a !== document.body; a = a.parentElement) inside ||= styleOf(a).overflowX !== "visible";
        if (!inside) wrong.push(`${name(e)} reaches to ${Math.round(r.right)}`);
      }
      if (wrong.length > 8) break;
    }
  }

  // Clipped text.
  const range = document.createRange();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (texts.nextNode()) {
    const node = texts.currentNode;
    const e = node.parentElement;
    if (!node.data.trim() || !visible(e) || e.closest("script, style, noscript, option, svg, textarea, title") || forEars(e)) continue;
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (!r.width || !r.height) continue;
      let [x, y, ellipsis] = [true, true, false];
      for (let a = e; a && a !== document.documentElement; a = a.parentElement) {
        const s = styleOf(a);
        ellipsis ||= s.textOverflow === "ellipsis" || s.webkitLineClamp !== "none";
        const box = a.getBoundingClientRect();
        if (x && s.overflowX !== "visible") {
          if (!/auto|scroll/.test(s.overflowX) && !ellipsis && (r.right > box.right + slack || r.left < box.left - slack) && !seen.has(a)) {
            seen.add(a);
            wrong.push(`text “${node.data.trim().slice(0, 40)}” is cut off by ${name(a)} at ${Math.round(r.left)}–${Math.round(r.right)} of ${Math.round(box.left)}–${Math.round(box.right)}`);
          }
          x = false;
        }
        if (y && s.overflowY !== "visible") {
          // A line box is higher than its glyphs.
          const letters = Math.min(4, r.height / 4);
          if (!/auto|scroll/.test(s.overflowY) && !ellipsis && (r.bottom > box.bottom + letters || r.top < box.top - letters) && !seen.has(a)) {
            seen.add(a);
            wrong.push(`text “${node.data.trim().slice(0, 40)}” is cut off by ${name(a)} at height ${Math.round(r.top)}–${Math.round(r.bottom)} of ${Math.round(box.top)}–${Math.round(box.bottom)}`);
          }
          y = false;
        }
        if (s.position === "fixed") break;
      }
    }
  }
  // Values clipped by their control.
  for (const e of document.querySelectorAll("button, a, .badge, input[type=submit]")) {
    if (visible(e) && !forEars(e) && e.scrollWidth > e.clientWidth + slack && e.clientWidth && styleOf(e).overflowX === "visible" && styleOf(e).display !== "inline"
      && ![...e.children].some(c => /absolute|fixed/.test(styleOf(c).position))) {
      wrong.push(`${name(e)} is ${e.clientWidth} px wide and needs ${e.scrollWidth}`);
    }
  }

  // Controls.
  const modal = document.querySelector("dialog:modal");
  const controls = [...(modal ?? document).querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]:not([tabindex='-1'])")]
    .filter(e => visible(e) && !e.disabled && !e.closest("svg") && // on a map things lie where they are
       !forEars(e) && !e.closest("[inert]") && styleOf(e).pointerEvents !== "none");
  // The part visible in its scroll container.
  const shown = e => {
    let { left, top, right, bottom } = [...e.getClientRects()].find(r => r.width && r.height) ?? e.getBoundingClientRect();
    for (let a = e.parentElement; a && a !== document.body; a = a.parentElement) {
      const s = styleOf(a);
      if (s.overflowX === "visible" && s.overflowY === "visible") continue;
      const b = a.getBoundingClientRect();
      [left, right, top, bottom] = [Math.max(left, b.left), Math.min(right, b.right), Math.max(top, b.top), Math.min(bottom, b.bottom)];
    }
    return { left, top, right, bottom, width: right - left, height: bottom - top };
  };
  const belongs = (e, hit) => hit && (e === hit || e.contains(hit) || hit.contains(e) && hit.matches("label, a, button, summary") ||
    [...(e.labels ?? [])].some(l => l.contains(hit)) || hit.tagName === "LABEL" && hit.control === e);
  for (const e of controls) {
    e.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const r = shown(e);
    if (r.width < 1 || r.height < 1) continue;
    const hit = document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
    if (hit?.closest(".toast") && scripts) continue; // it goes away
    if (!belongs(e, hit)) wrong.push(`${hit ? name(hit) : "nothing"} is where one would press ${name(e)}`);
  }
  scrollTo({ top: 0, left: 0, behavior: "instant" });
  const loose = e => {
    for (let a = e; a; a = a.parentElement) if (/fixed|sticky/.test(styleOf(a).position)) return true;
    return false;
  };
  const boxes = controls.filter(e => !loose(e)).map(e => [e, shown(e)]).filter(([, r]) => r.width > 0 && r.height > 0);
  for (const [i, [a, p]] of boxes.entries()) {
    for (const [b, q] of boxes.slice(i + 1)) {
      const [w, h] = [Math.min(p.right, q.right) - Math.max(p.left, q.left), Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top)];
      if (w <= 3 || h <= 3 || a.contains(b) || b.contains(a) || [...(a.labels ?? []), ...(b.labels ?? [])].some(l => l.contains(a) && l.contains(b))) continue;
      // A control inside a larger one, such as a checkbox in a row, was checked above.
      const area = r => r.width * r.height;
      if (w * h > 0.98 * Math.min(area(p), area(q)) && Math.max(area(p), area(q)) > 2 * Math.min(area(p), area(q))) continue;
      wrong.push(`${name(a)} and ${name(b)} overlap by ${Math.round(w)}×${Math.round(h)} px`);
    }
  }
  return [...new Set(wrong)].slice(0, 12);
})()
