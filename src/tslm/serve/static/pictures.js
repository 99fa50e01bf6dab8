"use strict";
// The drawings of tensor networks: in the colours of the page, and as files to keep.

const pictures = new Map(); // each picture on the page → its SVG as the server has drawn it
// The server draws for a light page; on a dark one lines and writing are lighter.
const ON_DARK = { "#7b8794": "#97a3b0", "#6b7785": "#b6c0cb", "#8a63b8": "#c4a3ec" };

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function inColours(svg, dark) {
  return dark ? svg.replace(/#[0-9a-f]{6}/g, (colour) => ON_DARK[colour] ?? colour) : svg;
}

function address(svg) {
  return `data:image/svg+xml;utf8,${encodeURIComponent(svg)}`;
}

function paint(picture) {
  picture.setAttribute("src", address(inColours(pictures.get(picture), isDark())));
}

function paintAll() {
  for (const picture of [...pictures.keys()]) {
    if (picture.isConnected) paint(picture);
    else pictures.delete(picture);
  }
}

function save(name, url) {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
}

// A file is for paper, mostly: it has the light colours, and a PNG three times the size and a white ground.
async function savePng(name, svg) {
  const picture = new Image();
  picture.src = address(svg);
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = picture.naturalWidth * 3;
  canvas.height = picture.naturalHeight * 3;
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  save(name, canvas.toDataURL("image/png"));
}

function saveButtons(picture) {
  const line = document.createElement("p");
  line.className = "tools";
  for (const [label, work] of [
    ["Save as SVG", (svg) => save("network.svg", address(svg))],
    ["Save as PNG", (svg) => savePng("network.png", svg)],
  ]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => work(pictures.get(picture)));
    line.append(button);
  }
  return line;
}
