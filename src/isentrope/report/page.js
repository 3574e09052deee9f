// Reads the values under the pointer off the drawn points: no data is stored twice.
for (const svg of document.querySelectorAll("figure svg")) {
  const figure = svg.closest("figure");
  const [x, y] = ["x", "y"].map((axis) => svg.dataset[axis].split(" ").map(Number));
  const counts = svg.querySelector(".name").textContent === "step";
  const series = [...svg.querySelectorAll("[data-label]")].map((group) => ({
    label: group.dataset.label,
    name: group.getAttribute("class"),
    points: group.querySelector("circle")
      ? [...group.querySelectorAll("circle")].map((dot) => [dot.cx.baseVal.value, dot.cy.baseVal.value])
      : (group.querySelector("path").getAttribute("d").match(/[ML][^MLh]+/g) || []).map((part) => part.slice(1).split(" ").map(Number)),
  }));
  const cursor = document.createElementNS(svg.namespaceURI, "path");
  cursor.setAttribute("class", "cursor");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);

  const value = ([low, high, start, end, log], pixel) => {
    const share = (pixel - start) / (end - start);
    return log ? low * (high / low) ** share : low + share * (high - low);
  };
  const text = (number) => Number(number.toPrecision(4)).toString();

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const at = (event.clientX - box.left) * scale, height = (event.clientY - box.top) * scale;
    const rows = series
      .filter((one) => one.points.length)
      .map((one) => {
        const distance = ([px, py]) => Math.abs(px - at) + Math.abs(py - height) / 1000;
        return { ...one, point: one.points.reduce((best, next) => (distance(next) < distance(best) ? next : best)) };
      });
    if (!rows.length) return;
    const nearest = rows.reduce((best, next) => (Math.abs(next.point[0] - at) < Math.abs(best.point[0] - at) ? next : best)).point[0];
    cursor.setAttribute("d", `M${nearest} ${y[3]}V${y[2]}`);
    svg.append(cursor);
    tip.replaceChildren(counts ? `step ${Math.round(value(x, nearest))}` : text(value(x, nearest)));
    for (const row of rows) {
      const line = document.createElement("div"), dot = document.createElement("i");
      line.className = row.name;
      line.append(dot, `${row.label}: ${text(value(y, row.point[1]))}`);
      tip.append(line);
    }
    tip.hidden = false;
    const left = event.clientX - figure.getBoundingClientRect().left;
    const flipped = left > figure.clientWidth / 2;
    tip.style.left = `${flipped ? left - tip.offsetWidth - 14 : left + 14}px`;
    tip.style.top = `${svg.offsetTop || 90}px`;
  });
  svg.addEventListener("pointerleave", () => { cursor.remove(); tip.hidden = true; });
}
