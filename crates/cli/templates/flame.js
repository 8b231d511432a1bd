(() => {
	const frames = [...document.querySelectorAll("svg.f")];
	const zoom = (x, w) => frames.forEach(f => {
		const fx = +f.dataset.x, fw = +f.dataset.w, e = 1e-3;
		const covers = fx <= x + e && fx + fw >= x + w - e;
		const inside = fx >= x - e && fx + fw <= x + w + e;
		f.style.display = covers || inside ? "" : "none";
		f.classList.toggle("outer", covers && fw > w + e);
		const left = covers ? 0 : 100 * (fx - x) / w, width = covers ? 100 : 100 * fw / w;
		f.setAttribute("x", left + "%");
		f.setAttribute("width", width + "%");
	});
	let now = null;
	frames.forEach(f => f.addEventListener("click", () => {
		now = now === f ? null : f;
		now ? zoom(+f.dataset.x, +f.dataset.w) : zoom(0, 100);
	}));
	window.findFrames = text => frames.forEach(f => {
		const name = f.querySelector("text").textContent.toLowerCase();
		f.classList.toggle("found", text !== "" && name.includes(text.toLowerCase()));
	});
})();
