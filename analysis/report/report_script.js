"use strict";
(function () {
  function all(selector, root) {
    return Array.prototype.slice.call((root || document).querySelectorAll(selector));
  }

  // A link into a folded section opens it.
  function unfold() {
    var target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    all("details.more", target).forEach(function (folded) { folded.open = true; });
    for (var node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", unfold);
  all("nav a").forEach(function (link) {
    link.addEventListener("click", function () { setTimeout(unfold, 0); });
  });

  // A heading sorts its column: most first, then least first, then as it was.
  function key(cell) {
    var text = (cell.querySelector(".value") || cell.querySelector(".label") || cell).textContent.trim();
    var number = parseFloat(text.replace(/\u2212/g, "-").replace(/:/g, ".").replace(/[,\s]/g, ""));
    return isNaN(number) || cell.tagName === "TH" ? text : number;
  }
  function compare(a, b) {
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return typeof a === "number" ? b - a : a.localeCompare(b);
  }
  all("table").forEach(function (table) {
    var body = table.tBodies[0], rows = all("tr", body);
    if (rows.length < 2) return;
    var heads = all("thead th.name, thead tr:last-child th", table), names = all("thead th.name", table);
    heads.forEach(function (head) {
      var isName = names.indexOf(head) >= 0, isLower = head.parentElement !== names[0].parentElement;
      var at = isName ? 0 : head.cellIndex + (isLower ? 1 : 0);
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      button.addEventListener("click", function () {
        var before = head.getAttribute("aria-sort");
        var now = before === null ? "descending" : before === "descending" ? "ascending" : null;
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        var order = rows.slice();
        if (now) {
          head.setAttribute("aria-sort", now);
          order.sort(function (a, b) {
            var x = key(a.cells[at]), y = key(b.cells[at]);
            return typeof x !== typeof y || now === "descending" ? compare(x, y) : compare(y, x);
          });
        }
        order.forEach(function (row) { body.appendChild(row); });
      });
    });
  });

  // Arms are switched off and on in every table and figure.
  var off = {};
  function show(part) {
    var one = part.getAttribute("data-arm"), arms = one === null ? JSON.parse(part.getAttribute("data-arms")) : [one];
    var isOff = arms.some(function (arm) { return off["=" + arm]; });
    if (part.tagName === "BUTTON") part.setAttribute("aria-pressed", String(!isOff));
    else if (part.tagName !== "TH") part.toggleAttribute("hidden", isOff);
    else all("tr", part.closest("table")).forEach(function (row) { row.cells[part.cellIndex].hidden = isOff; });
  }
  all(".switches").forEach(function (bar) {
    bar.hidden = false;
    all("button", bar).forEach(function (button) {
      button.addEventListener("click", function () {
        var arm = "=" + button.getAttribute("data-arm");
        off[arm] = !off[arm];
        all("[data-arm], [data-arms]").forEach(show);
      });
    });
  });

  // A table that goes on to the right says so: whenever its box, or what is shown of it, has another width.
  function tell(box) {
    box.parentElement.classList.toggle("is-cut", box.scrollWidth > box.clientWidth + 1);
  }
  var boxes = all(".scroll");
  if (typeof ResizeObserver === "function") {
    var watcher = new ResizeObserver(function (seen) {
      seen.forEach(function (one) { tell(one.target.closest(".scroll")); });
    });
    boxes.forEach(function (box) { [box, box.querySelector("table")].forEach(function (part) { watcher.observe(part); }); });
  } else {
    boxes.forEach(tell);
  }
  unfold();
})();
